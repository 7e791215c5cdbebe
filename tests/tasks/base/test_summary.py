"""The summary of the data of a training: counts by hand, and a warning for each wrong thing."""

import dataclasses
import json

import numpy as np
import pytest

from bert_jax.config import complete_config
from bert_jax.data.readers.rows import TableCounts
from bert_jax.experiment import Experiment
from bert_jax.tasks.base.summary import DataSummary, TokenCounts, count_classes

TOKENS = TokenCounts(median=12, most_rows=31, longest=32, unknown=0.01, texts=900, cut=9, limit=32)
GOOD = DataSummary(
    unit="rows",
    train=900,
    validation={"validation": 100},
    test={"test": 50},
    tokens=TOKENS,
    classes={"neg": 500, "pos": 400},
    validation_classes=("neg", "pos"),
    positive_class="pos",
)


def test_lines_of_good_data():
    assert GOOD.lines() == [
        "data: train 900 rows, validation 100, test 50",
        "classes: 2: 'neg' 500 (55.6%), 'pos' 400 (44.4%); f1 is the F1 of 'pos'",
        "tokens: rows of 12 (median), 31 (95 %), 32 (maximum); 1.0% unknown; "
        "9 of 900 texts cut to 32",
    ]
    assert GOOD.warnings() == []
    assert json.loads(json.dumps(GOOD.as_dict()))["warnings"] == []


def test_class_weights_are_of_the_training_alone():
    assert dataclasses.replace(GOOD, balanced=True).lines()[2] == (
        "class weights: balanced in the training loss; the metrics of an evaluation, also its "
        "loss, are not weighted"
    )


def test_lines_about_files():
    read = {"text": True, "label": True, "stars": False, "meta": False}
    files = (
        TableCounts("a.csv", 61, 46, columns=read),
        TableCounts("b.csv", 5, 5, columns=read),
        TableCounts("c.jsonl", columns={"text": True, "_id": False}, rejected=["c.jsonl:2"] * 3),
    )
    data = dataclasses.replace(GOOD, files=files)
    assert data.lines()[1:4] == [
        "a.csv: 61 lines → 46 rows",
        "a.csv, b.csv: columns read: 'text', 'label'; not read: 'stars', 'meta'",
        "c.jsonl: columns read: 'text'; not read: '_id'",
    ]
    assert data.warnings() == [
        "c.jsonl:2: a person has rejected or skipped the row (Prodigy, Label Studio), which is "
        "left out (and 2 more)"
    ]
    assert json.loads(json.dumps(data.as_dict()))["files"][1]["columns"] == read


def test_keys_without_end_are_not_all_kept():
    counts = TableCounts("a.jsonl")
    for number in range(2000):
        counts.note(("text", f"id{number}"), ("text",))
    assert len(counts.columns) == 1000
    line = dataclasses.replace(GOOD, files=(counts,)).lines()[1]
    assert line.startswith("a.jsonl: columns read: 'text'; not read: 'id0', 'id1', 'id2', ")
    assert line.endswith("'id19' and 979 more")


def test_lines_of_numbers_and_documents():
    scores = dataclasses.replace(GOOD, classes={}, positive_class="", values=(0.0, 2.5, 5.0))
    assert scores.lines()[1] == "labels: 0 to 5, mean 2.5"
    corpus = DataSummary("documents", 1234, {"validation": 12}, {}, TokenCounts(300, 900, 5000, 0))
    assert corpus.lines() == [
        "data: train 1,234 documents, validation 12",
        "tokens: documents of 300 (median), 900 (95 %), 5,000 (maximum); 0.0% unknown",
    ]
    assert dataclasses.replace(corpus, epoch_share=0.726).lines()[2:] == [
        "each epoch shows 73% of the tokens, drawn anew"
    ]
    many = dataclasses.replace(GOOD, classes={str(number): 10 for number in range(15)})
    assert many.lines()[1].startswith("classes: 15: '0' 10 (6.7%), '1' 10")
    assert ", '11' 10 (6.7%) and 3 more; f1" in many.lines()[1]


# Changes of good data, and the beginning of the warning.
PROBLEMS = [
    (
        {"classes": {f"{number / 8:g}": 1 for number in range(167)}},
        "167 classes for 167 rows, as 0, 0.125, 0.25 and 164 more: data.problem_type=regression le",
    ),
    ({"classes": {"1.0": 300, "2.5": 300, "4.0": 300}}, "3 classes for 900 rows, as 1.0, 2.5"),
    ({"classes": {f"title {n}": 9 for n in range(60)}}, "60 classes for 540 rows, as title 0"),
    (
        {"classes": {"joy": 300, "fear": 300, "joy, fear": 300}},
        "the class 'joy, fear' is made of others: data.label_separator=',' reads several",
    ),
    ({"classes": {"Pos": 300, "neg": 300, "pos ": 300}}, "the classes 'Pos' and 'pos ' differ in"),
    ({"classes": {"1": 300, "1.0": 300, "2": 300}}, "the classes '1' and '1.0' differ in case"),
    ({"classes": {"caf\u00e9": 300, "cafe\u0301": 300}}, r"the classes 'café' and 'cafe\u"),
    ({"classes": {"pos": 300, "pos\u200b": 300}}, r"the classes 'pos' and 'pos\u200b' differ"),
    ({"classes": {"a": 300, "null": 300}}, "does the class 'null' stand for a missing label?"),
    (
        {"classes": {"a": 299, "b": 1}},
        "99.7% of the training rows have the class 'a': a model that",
    ),
    ({"classes": {}, "values": (3.0, 3.0, 3.0)}, "all labels are 3: there is nothing to learn"),
    (
        {"tokens": dataclasses.replace(TOKENS, cut=900)},
        "100.0% of the texts are longer than 32 tokens, and the rest of them is not read: raise da",
    ),
    (
        {"tokens": dataclasses.replace(TOKENS, unknown=0.4)},
        "40.0% of the tokens are unknown to the vocabulary: is it of another language than the ",
    ),
    ({"validation": {"dev": 3}}, "dev has 3 rows only: its metrics say little"),
    ({"unit": "documents", "validation": {"dev": 1}}, "dev has 1 document only: its metrics say"),
    ({"validation_classes": ("pos", "other")}, "no training example has the classes of validation"),
    ({"duplicates": {"validation": 5}}, "5 of 100 validation rows are training rows, too: their m"),
    (
        {"test": {"test": 20}, "duplicates": {"validation": 0, "test": 20}},
        "20 of 20 test rows are training rows, too",
    ),
]


@pytest.mark.parametrize(("changes", "warning"), PROBLEMS)
def test_each_problem_is_one_warning(changes, warning):
    bad = dataclasses.replace(GOOD, **{"validation_classes": (), **changes})
    (line,) = bad.warnings()
    assert line.startswith(warning)


def test_several_warnings_about_many_classes():
    written = {name: 100 for number in range(9) for name in (f"a{number}", f"A{number}")}
    warnings = dataclasses.replace(GOOD, classes=written, validation_classes=()).warnings()
    assert len(warnings) == 4
    assert "'a2' and 'A2' differ" in warnings[2]
    assert warnings[3] == "6 more classes are written in several ways"


def test_usual_data_give_no_warning():
    for changes in (
        {"classes": {"a": 89, "b": 11}},
        {"classes": {str(star): 100 for star in range(1, 6)}},  # whole numbers may be classes
        {"classes": {f"intent {n}": 10 for n in range(150)}},
        {"classes": {"O": 9900, "B-PER": 50, "b-org": 50}, "of_words": True},
        {"duplicates": {"validation": 4}},
        {"tokens": dataclasses.replace(TOKENS, cut=89, unknown=0.04)},
        {"unit": "documents", "validation": {"validation": 5}},
    ):
        assert dataclasses.replace(GOOD, validation_classes=(), **changes).warnings() == []


def test_counts():
    assert count_classes(["a", ("a", "b"), (), None, 1.5, 3]) == {"a": 2, "b": 1, "3": 1}
    lengths = np.arange(1, 101)
    assert TokenCounts.from_lengths(lengths, 0.5) == TokenCounts(50, 95, 100, 0.5)


@pytest.fixture
def summary(base_model, tmp_path):
    """The summary of a task's data; rows are JSON lines."""

    def of(task, rows, validation=(), **keys):
        names = {"train": rows, "validation": validation}
        for name, lines in names.items():
            text = "".join(json.dumps(line) + "\n" for line in lines)
            (tmp_path / f"{name}.jsonl").write_text(text)
        data = {
            "train": str(tmp_path / "train.jsonl"),
            "validation": (str(tmp_path / "validation.jsonl"),) if validation else (),
            "length": 16,
            **keys,
        }
        config = complete_config(
            {"task": task, "init_from": str(base_model), "data": data}, where="test"
        )
        return Experiment.from_config(config).task.data_summary

    return of


def test_the_rows_of_a_table_are_counted(summary):
    rows = [{"text": "the cat sat", "label": "x"}, {"text": "漢 漢 dog", "label": "y"}] * 3
    rows += [{"text": "the cat " * 20, "label": "x"}]
    data = summary("classification", rows, [{"text": "the cat sat", "label": "x"}])
    # [CLS] and [SEP] are no words; five texts are 3 · 2, and one has 14 of its 40 words.
    assert data == DataSummary(
        unit="rows",
        train=7,
        validation={"validation": 1},
        test={},
        tokens=TokenCounts(5, 16, 16, 6 / (3 * 3 + 3 * 3 + 14), texts=7, cut=1, limit=16),
        classes={"x": 4, "y": 3},
        validation_classes=("x",),
        positive_class="y",
        duplicates={"validation": 1},
    )


def test_every_task_has_a_summary(summary):
    sentence = {"tokens": ["the", "cat"], "tags": ["O", "B-A"]}
    data = summary("tagging", [sentence] * 3, [sentence])
    assert (data.unit, data.classes, data.duplicates) == (
        "sentences",
        {"O": 3, "B-A": 3},
        {"validation": 1},
    )
    assert data.tokens == TokenCounts(4, 4, 4, 0.0, limit=16)

    question = {"question": "it was", "context": "the cat sat", "answers": []}
    known = question | {"question": "the", "answers": [{"text": "cat", "answer_start": 4}]}
    data = summary("question_answering", [question, known, known], [known], question_length=4)
    assert (data.unit, data.classes) == ("questions", {"answer": 2, "no answer": 1})
    assert (data.tokens.longest, data.duplicates) == (8, {"validation": 1})

    choice = {"prompt": "the cat", "choices": ["sat", "ran"], "label": 1}
    data = summary("multiple_choice", [choice] * 2, [choice | {"label": 0}])
    assert (data.classes, data.validation_classes, data.duplicates) == (
        {"1": 2},
        ("0",),
        {"validation": 1},
    )
    assert (data.tokens.texts, data.tokens.longest) == (4, 6)

    pair = {"text": "the cat", "text_pair": "the dog", "label": 0.5}
    data = summary("similarity", [pair, pair | {"label": 1}], [pair])
    assert (data.values, data.classes, data.tokens.texts) == (
        (0.5, 0.75, 1.0),
        {},
        4,
    )


@pytest.mark.parametrize(
    ("task", "row", "read", "unread"),
    [
        (
            "classification",  # a question and its answer are no usual pair
            {"question": "what", "answer": "the cat", "label": "x", "id": 1},
            "'question', 'label', 'id'",
            {"answer": False},
        ),
        (
            "similarity",
            {"text1": "the", "text2": "cat", "text": "a", "label": 1},
            "'text1', 'text2', 'label'",
            {"text": False},
        ),
        (
            "tagging",
            {"id": "1", "tokens": ["the", "cat"], "pos": ["X", "X"], "ner_tags": ["O", "B-A"]},
            "'id', 'tokens', 'ner_tags'",
            {"pos": False},
        ),
        (
            "question_answering",
            {"question": "what", "context": "cat", "answers": ["cat"], "title": "a", "x.y": 1},
            "'question', 'context', 'answers'",
            {"title": False, "x.y": False},
        ),
        (
            "multiple_choice",
            {"prompt": "the cat", "choices": ["sat", "ran"], "label": 0, "fold": 1, "id": 2},
            "'prompt', 'choices', 'label', 'id'",
            {"fold": False},
        ),
        (
            "ranking",
            {"query": "the", "positive": "cat", "negative": ["dog", "boy"], "kind": 1},
            "'query', 'positive', 'negative'",
            {"kind": False},
        ),
    ],
)
def test_columns_that_are_not_read_are_named(summary, task, row, read, unread):
    rows = [row, row | {"label": "y"}] if task == "classification" else [row] * 2
    train, validation = summary(task, rows, rows).files
    assert train.columns == validation.columns == {**dict.fromkeys(row, True), **unread}
    assert summary(task, rows, rows).lines()[1] == (
        f"{train.name}, {validation.name}: columns read: {read}; not read: "
        f"{', '.join(map(repr, unread))}"
    )


def test_one_label_in_a_list_and_negatives_that_are_not_read_are_warnings(summary):
    rows = [{"text": "the cat", "label": ["x"]}, {"text": "the dog", "label": ["y"]}] * 20
    data = summary("classification", rows, rows[:30])
    assert data.warnings()[0] == (
        "every training text has one label, in a list: data.problem_type="
        "single_label_classification learns one class of each"
    )
    data = summary("classification", rows, problem_type="single_label_classification")
    assert (data.classes, data.positive_class) == ({"x": 18, "y": 18}, "y")
    assert not any("in a list" in warning for warning in data.warnings())

    row = {"anchor": "the", "positive": "cat", "negative": "dog", "negative_2": "boy", "kind": "a"}
    names = {"text_column": "anchor", "pair_column": "positive", "loss": "in_batch_negatives"}
    data = summary("similarity", [row] * 20, **names)
    assert data.warnings()[:2] == [
        f"the column {name!r} is not read: a pair has no negatives; task retrieval learns them"
        for name in ("negative", "negative_2")
    ]


@pytest.mark.parametrize("task", ["classification", "tagging"])
def test_rows_that_are_rejected_in_prodigy_are_left_out(summary, task):
    inputs = {"text": "the cat"} if task == "classification" else {"tokens": ["the"]}
    labels = [{"label": "x", "tags": ["O"]}, {"label": "y", "tags": ["B-A"]}]
    rows = [inputs | label | {"answer": "accept"} for label in labels]
    rejected = [inputs | {"label": "z", "tags": ["B-B"], "answer": answer, "_task_hash": 1}
                for answer in ("reject", "ignore")]  # fmt: skip
    data = summary(task, [*rejected, *rows], rows)
    assert (data.train, len(data.classes), data.validation) == (2, 2, {"validation": 2})
    (file,) = (file for file in data.files if file.rejected)
    assert file.columns["answer"]
    assert data.warnings()[0] == (
        f"{file.name}:1: a person has rejected or skipped the row (Prodigy, Label Studio), which "
        "is left out (and 1 more)"
    )
