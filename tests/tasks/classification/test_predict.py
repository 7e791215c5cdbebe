"""Labels of a file: JSON lines, and GLUE's tables."""

import dataclasses
import json

import numpy as np
import pytest

import bert_jax
from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.errors import UserError
from bert_jax.models.config import EncoderConfig
from bert_jax.tasks.classification.predict import Classification, to_prediction, to_record

# exp(0) : exp(1.0986) : exp(1.3863) = 1 : 3 : 4
SCORES = (0.0, float(np.log(3)), float(np.log(4)))
LABELS = ("bad", "fine", "good")


@pytest.fixture
def classifier(make_labelled):
    """Says the same of everything: good with probability 1/2."""
    return make_labelled("classification", LABELS, SCORES)


def test_of_very_many_labels_the_most_probable_are_shown():
    labels = tuple(f"label {number}" for number in range(1200))
    config = EncoderConfig(vocab_size=10, num_labels=1200)
    description = ModelDescription(config, "classification", labels)
    scores = np.random.default_rng(0).permutation(1200).astype(np.float32) / 100
    record = to_record(to_prediction(description, scores))
    # The 200 lowest scores are 0.00 to 1.99.
    kept = [label for label, score in zip(labels, scores, strict=True) if score >= 2]
    assert list(record["probabilities"]) == kept
    assert record["label"] == labels[int(scores.argmax())]
    assert record["probabilities"][record["label"]] == record["score"]
    all_of_them = to_prediction(
        ModelDescription(dataclasses.replace(config, num_labels=1000), None, labels[:1000]),
        scores[:1000],
    )
    assert list(all_of_them.probabilities) == list(labels[:1000])


def test_records_keep_the_other_columns(predict_file, classifier):
    actual = predict_file(
        classifier,
        "id\tsentence\tlabel\tnote\n7\tthe cat\tbad\tx\n8\t\tnonsense\ty\n",
        "in.tsv",
    )
    records = [json.loads(line) for line in actual.splitlines()]
    assert [list(record) for record in records] == [
        ["id", "sentence", "expected", "note", "label", "score", "probabilities"]
    ] * 2
    # The text that is empty is answered; an unknown label is kept.
    assert [(record["id"], record["expected"], record["note"]) for record in records] == [
        ("7", "bad", "x"),
        ("8", "nonsense", "y"),
    ]
    for record in records:
        assert record["label"] == "good"
        assert record["score"] == pytest.approx(0.5)
        assert record["probabilities"] == pytest.approx({"bad": 1 / 8, "fine": 3 / 8, "good": 0.5})


@pytest.mark.slow
def test_numbers_have_the_digits_of_a_float32(predict_file, classifier, make_labelled):
    line = predict_file(classifier, "the cat\n", "in.txt")
    assert line == (
        '{"text": "the cat", "label": "good", "score": 0.5, "probabilities": '
        '{"bad": 0.125, "fine": 0.375, "good": 0.5}}\n'
    )
    third = to_record(Classification("a", 1 / 3, {"a": 1 / 3, "b": 2 / 3}))
    assert third["score"] == third["probabilities"]["a"] == 0.33333334
    assert third["probabilities"]["b"] == 0.6666667
    model = make_labelled("classification", ("x",), (0.1,), problem_type="regression")
    assert predict_file(model, "the cat\n", "in.txt") == '{"text": "the cat", "value": 0.1}\n'


def torch_class(name):
    return f"torch.nn.modules.activation.{name}"


STORED = {"sentence_transformers": {"activation_fn": torch_class("Tanh")}}
OLD = {"sbert_ce_default_activation_function": torch_class("ReLU")}


@pytest.mark.parametrize(
    ("problem", "other", "score"),
    [
        (None, {}, 0.1192029),  # the sigmoid of -2
        ("single_label_classification", {}, 0.1192029),
        ("regression", {}, -2),
        (None, STORED, -0.9640276),
        ("regression", STORED, -0.9640276),
        (None, OLD, 0),
        (None, STORED | OLD, -0.9640276),
        (None, {"sentence_transformers": {"version": "4.1"}}, 0.1192029),
        (None, {"sbert_ce_default_activation_function": "torch.nn.Identity"}, -2),
        (None, {"sbert_ce_default_activation_function": torch_class("Sigmoid")}, 0.1192029),
        (None, {"sbert_ce_default_activation_function": torch_class("Softplus")}, 0.1269280),
    ],
)
def test_a_single_output_is_a_score_with_its_activation(make_labelled, problem, other, score):
    """As in CrossEncoder of sentence-transformers 6, and pipelines of transformers 5.

    Where both a regression and an activation are stored, these two differ.
    """
    model = make_labelled("classification", ("x",), (-2.0,), problem_type=problem, other=other)
    assert model.classify(["the cat"]) == [pytest.approx(score, abs=1e-6)]
    assert model.classify(["the cat"], raw_scores=True) == [-2]


def test_an_activation_that_is_not_known_is_refused_by_its_name(make_labelled):
    other = {"sbert_ce_default_activation_function": "my.Module"}
    model = make_labelled("classification", ("x",), (-2.0,), other=other)
    with pytest.raises(UserError, match="activation_fn is 'my.Module'; known are torch's Identity"):
        model.classify(["the cat"])
    assert model.classify(["the cat"], raw_scores=True) == [-2]


def test_a_dict_is_refused(classifier):
    with pytest.raises(UserError, match="the texts are one dict, {'text': 'the cat', 'text_pair'"):
        classifier.classify({"text": "the cat", "text_pair": "sat"})
    with pytest.raises(UserError, match="^example 0: {'text': 'the cat'} is no text; give"):
        classifier.classify([{"text": "the cat"}])


@pytest.mark.parametrize(
    ("section", "message"),
    [
        (["Tanh"], r"config.json: sentence_transformers is \['Tanh'\]; it must be an object: copy"),
        ({"modules.json": 3}, "config.json: modules.json is 3; it must be a list: copy it again"),
        ({"sentence_bert_config.json": "x"}, "bert_config.json is 'x'; it must be an object: copy"),
    ],
)
def test_a_section_of_a_wrong_type(make_labelled, section, message):
    other = {"sentence_transformers": section}
    model = make_labelled("classification", ("x",), (-2.0,), other=other)
    with pytest.raises(UserError, match=message):
        model.classify(["the cat"])


def test_raw_scores_are_logits(make_labelled, predict_file, classifier):
    line = json.loads(predict_file(classifier, "the cat\n", "in.txt", raw_scores=True))
    assert line["label"] == "good"
    assert line["score"] == pytest.approx(SCORES[2])
    assert line["probabilities"] == pytest.approx(dict(zip(LABELS, SCORES, strict=True)))
    several = make_labelled(
        "classification", LABELS, (1.0, -1.0, 2.0), problem_type="multi_label_classification"
    )
    raw = Classification(("bad", "good"), 1.0, {"bad": 1.0, "fine": -1.0, "good": 2.0})
    assert several.classify(["the cat"], raw_scores=True) == [raw]
    values = dataclasses.replace(several.description, problem_type="regression")
    (actual,) = dataclasses.replace(several, description=values).classify(["the cat"])
    assert actual == Classification("good", 2.0, raw.probabilities)


def test_the_activation_beside_config_json_comes_first_and_is_kept(tmp_path, make_labelled):
    model = make_labelled("classification", ("x",), (-2.0,), other=OLD)
    model.save(tmp_path / "model")
    beside = {"model_type": "CrossEncoder", "activation_fn": torch_class("Tanh")}
    path = tmp_path / "model/config_sentence_transformers.json"
    entry = {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}
    (tmp_path / "model/modules.json").write_text(json.dumps([entry]))
    path.write_text(json.dumps(beside | {"prompts": {"a": "Q: "}, "default_prompt_name": "a"}))
    with pytest.raises(UserError, match="default_prompt_name is 'a'; prompts of cross-encoders"):
        bert_jax.load(tmp_path / "model").classify(["the cat"])
    path.write_text(json.dumps(beside | {"prompts": {"a": "Q: "}, "my_note": 1}))
    encoder = tmp_path / "model/sentence_bert_config.json"
    encoder.write_text('{"transformer_task": "sequence-classification", "max_seq_length": 5}')
    with pytest.raises(UserError, match="bert_config.json: max_seq_length is 5; it is not supp"):
        bert_jax.load(tmp_path / "model").classify(["the cat"])
    encoder.write_text('{"transformer_task": "sequence-classification", "max_seq_length": null}')
    bert_jax.load(tmp_path / "model").save(tmp_path / "again")
    saved = json.loads((tmp_path / "again/config.json").read_text())["sentence_transformers"]
    kept = {"prompts": {"a": "Q: "}, "my_note": 1}
    assert saved == STORED["sentence_transformers"] | kept
    assert bert_jax.load(tmp_path / "again").classify(["the cat"]) == [pytest.approx(-0.9640276)]


def test_the_name_of_a_right_answer(predict_file, classifier):
    """It stays, unless a prediction has a field of this name."""
    actual = predict_file(classifier, '{"text": "a", "gold_label": "bad"}\n{"text": "b"}\n')
    first, second = map(json.loads, actual.splitlines())
    assert list(first) == ["text", "gold_label", "label", "score", "probabilities"]
    assert list(second) == ["text", "label", "score", "probabilities"]
    row = {"text": "a", "label": "bad", "expected": "good"}
    with pytest.raises(UserError, match="both 'label' and 'expected' conflict with output fields"):
        predict_file(classifier, json.dumps(row) + "\n")


@pytest.mark.slow
def test_the_answers_are_those_of_classify(predict_file, make_labelled):
    model = make_labelled("classification", LABELS)
    texts = ["the sun", "a cat sat on the mat .", ("it was", "low"), ""] * 10
    rows = [{"text": t} if isinstance(t, str) else {"text": t[0], "text_pair": t[1]} for t in texts]
    actual = predict_file(model, "".join(json.dumps(row) + "\n" for row in rows))
    for line, expected in zip(
        actual.splitlines(), model.classify(texts, batch_size=2), strict=True
    ):
        record = json.loads(line)
        assert record["label"] == expected.label
        assert record["probabilities"] == pytest.approx(expected.probabilities, rel=1e-5)


def test_glue_has_an_index_and_a_prediction(predict_file, classifier):
    content = "index\tsentence1\tsentence2\n5\ta\tb\n3\tc\td\n"
    assert predict_file(classifier, content, "test.tsv", "RTE.tsv", format="glue:rte") == (
        "index\tprediction\n5\tgood\n3\tgood\n"
    )
    # Without ids the rows are numbered.
    assert predict_file(classifier, "a\nb\n", "in.txt", "out", output_format="glue") == (
        "index\tprediction\n0\tgood\n1\tgood\n"
    )
    # CoLA's training and validation files have no header.
    content = 'gj04\t1\t\tThe sailors rode "in.\ngj04\t0\t*\tLong low\n'
    (first, second) = predict_file(classifier, content, "dev.tsv", format="glue:cola").splitlines()
    keys = ["source", "expected", "mark", "sentence", "label", "score", "probabilities"]
    assert list(json.loads(first)) == list(json.loads(second)) == keys
    # A format that is named does not depend on the name of the file.
    (line,) = predict_file(
        classifier, "a\n", "in.txt", "out.tsv", output_format="jsonl"
    ).splitlines()
    assert json.loads(line)["label"] == "good"


ROW = '{"n": 7, "doc": {"text": "a\\tb", "by": [1]}, "label": "bad"}\n{"doc": {"text": "c"}}\n'


def test_chosen_columns_are_kept(predict_file, classifier):
    names = {"text_column": "doc.text", "keep_columns": ("doc.text", "n", "doc.by", "label")}
    first, second = map(json.loads, predict_file(classifier, ROW, **names).splitlines())
    assert list(first.items())[:5] == [
        *[("doc.text", "a\tb"), ("n", 7), ("doc.by", [1]), ("expected", "bad"), ("label", "good")]
    ]
    assert list(second.items())[:2] == [("doc.text", "c"), ("label", "good")]
    assert predict_file(classifier, ROW, output="out.tsv", **names) == (
        "doc.text\tn\tdoc.by\tlabel\tprediction\na b\t7\t[1]\tbad\tgood\nc\t\t\t\tgood\n"
    )
    table = {"name": "in.csv", "output": "out.tsv"}
    semicolons = "text;n\na, b;7\n"
    assert predict_file(classifier, semicolons, **table, keep_columns=("n", "text")) == (
        "n\ttext\tprediction\n7\ta, b\tgood\n"
    )
    assert predict_file(classifier, semicolons, **table, keep_columns=()) == "prediction\ngood\n"


@pytest.mark.parametrize(
    ("keep", "message"),
    [
        (("n", "m"), "in.csv:2: there is no column 'm', only 'text', 'n'; choose among these"),
        (("n", "prediction"), "keep_columns .* the output has its own column 'prediction'"),
    ],
)
def test_columns_that_cannot_be_kept(predict_file, classifier, keep, message):
    with pytest.raises(UserError, match=message):
        predict_file(classifier, "text,n\na,7\n", "in.csv", "out.tsv", keep_columns=keep)


def test_numbers(predict_file, make_labelled):
    model = make_labelled("classification", ("LABEL_0",), (2.34567,), problem_type="regression")
    content = "index\tsentence1\tsentence2\tscore\n0\ta\tb\t5.0\n"
    actual = predict_file(model, content, "test.tsv", "STS-B.tsv", format="glue:stsb")
    assert actual == "index\tprediction\n0\t2.346\n"
    record = json.loads(predict_file(model, content, "test.tsv"))
    read = {"index": "0", "sentence1": "a", "sentence2": "b", "score": "5.0"}
    assert record == {**read, "value": pytest.approx(2.34567)}


def test_any_of_several_labels(predict_file, make_labelled):
    model = make_labelled(
        "classification",
        LABELS,
        (1.0, -1.0, 2.0),
        problem_type="multi_label_classification",
    )
    record = json.loads(predict_file(model, "a\n", "in.txt"))
    assert record["label"] == ["bad", "good"]
    assert predict_file(model, "a\n", "in.txt", "out.tsv") == "index\tprediction\n0\tbad,good\n"


@pytest.mark.slow
def test_names_with_tabs_do_not_tear_the_table(predict_file, make_labelled):
    model = make_labelled("classification", ("a\tb", "c"), (1.0, 0.0))
    actual = predict_file(model, '{"id": "x\\ty", "text": "a"}\n', output="out.tsv")
    assert actual == "index\tprediction\nx y\ta b\n"


@pytest.mark.parametrize(
    ("content", "name", "options", "message"),
    [
        ('{"text": "a", "probabilities": 1}', "in.jsonl", {}, "in.jsonl:1: 'probabilities' confli"),
        ("a\n", "in.txt", {"output_format": "conll"}, "output_format is 'conll'; this task has"),
        ("a\n", "in.txt", {"format": "glue:x"}, "data.format is 'glue:x'"),
        ("a\n", "in.txt", {"task": "tagging"}, "task 'tagging' needs a model with the head tagg"),
    ],
)
def test_errors_leave_nothing(predict_file, listing, classifier, content, name, options, message):
    with pytest.raises(UserError, match=message):
        predict_file(classifier, content, name, **options)
    assert listing() == {name}
