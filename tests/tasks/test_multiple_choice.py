"""Multiple choice: choices are rows, an example may have any number of them; files in and out."""

import dataclasses
import json
import random

import jax
import numpy as np
import pytest

import bert_jax
from bert_jax.data.examples import Choices
from bert_jax.errors import UserError
from bert_jax.inference.engine import predict_examples
from bert_jax.tasks.base.model_init import heads_to_reinitialize
from bert_jax.tasks.base.predictor import BatchOptions, EncodingCounts, ExampleError
from bert_jax.tasks.multiple_choice import ChoiceEncoder, ChoicePredictor, best_choice


def logits(model, examples, **options):
    return predict_examples(ChoicePredictor(model, BatchOptions(**options)), examples)


def item(prompt, *choices, question=""):
    return Choices(prompt, choices, question)


ITEMS = [
    item("the cat", "sat on the mat .", "sang"),
    item("a bird was in the tree", "it sang .", "it ran .", "it walked .", "a dog was warm ."),
    item("the sea", "was low", "was long", "was a song", question="it"),
]


@pytest.fixture(scope="module")
def chooser(make_model):
    return make_model("multiple_choice")


def test_rows_by_hand(tokenizer, chooser):
    encode = ChoiceEncoder(tokenizer, chooser.config, 32)
    two, three = encode([ITEMS[0], ITEMS[2]])
    (first, second), (queries, _, _) = two.rows, three.rows
    assert " ".join(first.tokens) == "[CLS] the cat [SEP] sat on the mat . [SEP]"
    assert first.type_ids == [0, 0, 0, 0, 1, 1, 1, 1, 1, 1]
    assert " ".join(second.tokens) == "[CLS] the cat [SEP] sang [SEP]"
    # The question stands with the choice, as in Hugging Face's examples.
    assert " ".join(queries.tokens) == "[CLS] the sea [SEP] it was low [SEP]"


def test_a_long_prompt_is_cut_and_the_choice_stays(tokenizer, chooser):
    encode = ChoiceEncoder(tokenizer, chooser.config, 10)
    (encoded,) = encode([item("the cat " * 9, "sang .", "the dog ran to the tree .")])
    first, second = encoded.rows
    assert " ".join(first.tokens) == "[CLS] the cat the cat the [SEP] sang . [SEP]"
    # What is longer than half of the room is cut, too.
    assert " ".join(second.tokens) == "[CLS] the cat the cat [SEP] the dog ran [SEP]"
    assert encoded.counts == EncodingCounts(texts=2, cut=2)


@pytest.mark.slow
def test_scores_are_those_of_the_model_for_all_choices_at_once(chooser):
    actual = list(logits(chooser, ITEMS, batch_size=3))
    assert [scores.shape for scores in actual] == [(2,), (4,), (3,)]
    apply = jax.jit(chooser.module.apply)
    for entry, scores in zip(ITEMS, actual, strict=True):
        prompts = [entry.prompt] * len(entry.choices)
        choices = [f"{entry.question} {choice}".strip() for choice in entry.choices]
        rows = chooser.tokenizer.encode_batch(prompts, choices)
        arrays = np.zeros((3, 1, 4, 24), np.int32)  # 1CT, of the most choices
        for number, row in enumerate(rows):
            for array, values in zip(arrays, (row.ids, row.type_ids, [1] * len(row)), strict=True):
                array[0, number, : len(row)] = values
        expected = apply({"params": chooser.params}, *arrays)
        np.testing.assert_allclose(scores, expected[0, : len(rows)], atol=1e-5)


def test_the_best_choice_by_hand():
    actual = best_choice(["a", "b", "c"], np.log(np.array([2, 5, 3], np.float32)))
    assert (actual.index, actual.choice) == (1, "b")
    assert actual.score == pytest.approx(0.5)
    assert actual.probabilities == pytest.approx((0.2, 0.5, 0.3))
    assert best_choice(["a", "b"], np.zeros(2, np.float32)).index == 0


@pytest.mark.slow
def test_one_prompt_or_many(chooser):
    best = chooser.choose("the cat", ["sat on the mat .", "sang"])
    assert best.choice in ("sat on the mat .", "sang")
    assert sum(best.probabilities) == pytest.approx(1)
    many = chooser.choose(["the cat", "the sea"], [["sat on the mat .", "sang"], list("abc")])
    assert many[0].probabilities == pytest.approx(best.probabilities, abs=1e-6)
    assert len(many[1].probabilities) == 3
    queries = chooser.choose("the sea", ["was low", "was long", "was a song"], "it")
    (expected,) = logits(chooser, [ITEMS[2]])
    assert queries.index == expected.argmax()
    assert chooser.choose([], []) == []


def test_refused_choices(chooser, model):
    with pytest.raises(UserError, match="this BertForPreTraining does not choose; give"):
        model.choose("the cat", ["sat", "ran"])
    with pytest.raises(UserError, match="the choices are one string, 'sat'"):
        chooser.choose("the cat", "sat")
    with pytest.raises(UserError, match="1 choices; give two or more"):
        chooser.choose("the cat", ["sat"])
    by_name = {"0": "sat", "1": "ran"}
    for given, name in (
        (("the cat", by_name), "choices"),
        ((by_name, [["a", "b"]] * 2), "prompts"),
        ((["a", "b"], by_name), "choices"),
        ((["a", "b"], [["a", "b"]] * 2, by_name), "questions"),
    ):
        with pytest.raises(UserError, match=f"the {name} are one dict, {{'0': 'sat', '1': 'ran'}}"):
            chooser.choose(*given)
    with pytest.raises(UserError, match="2 prompts, 1 lists of choices, 2 questions"):
        chooser.choose(["the cat", "the sea"], [["sat", "ran"]])
    with pytest.raises(ExampleError, match="7 is no text") as caught:
        list(logits(chooser, [ITEMS[0], item("a", "b", 7)]))
    assert caught.value.index == 1
    with pytest.raises(UserError, match="max_length is 64; this model takes 3 to 32 tokens"):
        logits(chooser, ITEMS, max_length=64)


def test_a_model_of_one_segment_is_refused(chooser):
    config = dataclasses.replace(chooser.config, type_vocab_size=1)
    with pytest.raises(UserError, match="choices need .* type_vocab_size 1; give another model"):
        ChoiceEncoder(chooser.tokenizer, config, 32)


@pytest.mark.slow
def test_equal_to_transformers(chooser, tmp_path):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    chooser.save(tmp_path)
    peer = transformers.BertForMultipleChoice.from_pretrained(tmp_path).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    items = [*ITEMS, item("the cat ran to the sea " * 4, "it was warm .", "a song was sung . " * 5)]
    actual = logits(chooser, items, max_length=24)
    for entry, scores in zip(items, actual, strict=True):
        # As examples/pytorch/multiple-choice/run_swag.py makes its rows.
        rows = tokenizer(
            [entry.prompt] * len(entry.choices),
            [f"{entry.question} {choice}".strip() for choice in entry.choices],
            truncation=True, max_length=24, padding=True, return_tensors="pt",
        )  # fmt: skip
        with torch.no_grad():
            expected = peer(**{name: array[None] for name, array in rows.items()}).logits[0]
        np.testing.assert_allclose(scores, expected.numpy(), atol=1e-5)


# Files to predict.


def test_json_lines(predict_file, chooser, read_rows):
    rows = [
        {"id": 7, "prompt": "the cat", "choices": ["sat", "ran", "was low"], "label": "no such"},
        {"id": 8, "prompt": "", "choices": ["sat", ""], "answer": 5},
    ]
    actual = read_rows(predict_file(chooser, "".join(json.dumps(row) + "\n" for row in rows)))
    read = ["id", "prompt", "choices", "label"]
    assert list(actual[0]) == [*read, "index", "choice", "score", "probabilities"]
    assert (actual[0]["label"], actual[1]["answer"]) == ("no such", 5)
    for record, row in zip(actual, rows, strict=True):
        expected = chooser.choose(row["prompt"], row["choices"])
        assert record["index"] == expected.index
        assert record["choice"] == row["choices"][record["index"]]
        assert record["probabilities"] == pytest.approx(list(expected.probabilities), rel=1e-5)


def test_the_table_of_swag_and_questions_of_arc(predict_file, chooser, read_rows):
    content = (
        "video-id,fold-ind,sent1,sent2,ending0,ending1,label\n"
        "v1,12,the cat sat .,it,was low,ran,1\nv2,13,the sun,it,went up,went down,\n"
    )
    first, second = read_rows(predict_file(chooser, content, "test.csv"))
    assert list(first)[:8] == [*content.split("\n")[0].split(","), "index"]
    assert (first["video-id"], first["label"], second["fold-ind"]) == ("v1", "1", "13")
    assert first["choice"] == chooser.choose("the cat sat .", ["it was low", "it ran"]).choice
    choices = [{"text": "sun", "label": "A"}, {"text": "sea", "label": "B"}]
    row = {"id": "x", "question": {"stem": "it was", "choices": choices}, "answerKey": "Z"}
    (record,) = read_rows(predict_file(chooser, json.dumps(row)))
    assert (record["id"], record["answerKey"]) == ("x", "Z")
    assert record["choice"] in ("sun", "sea")


# Training.


def animals(count, seed=0):
    """Items whose right choice is the animal; two, three or four choices."""
    draw = random.Random(seed)
    for number in range(count):
        things = draw.sample(["mat", "tree", "sea", "song", "shell"], draw.choice([1, 2, 3]))
        label = draw.randrange(len(things) + 1)
        choices = [f"a {thing} ." for thing in things]
        choices.insert(label, f"a {draw.choice(['cat', 'dog', 'bird'])} .")
        yield {"id": f"q{number}", "prompt": "it was", "choices": choices, "label": label}


@pytest.mark.slow
def test_the_right_choice_is_learned(train, experiment, write_rows, read_rows):
    file = write_rows("train.jsonl", animals(200))
    unlabelled = list(animals(3, seed=1))
    for row in unlabelled:
        del row["label"]
    test = write_rows("test.jsonl", unlabelled)
    result, workdir = train("multiple_choice", data__train=file, data__test=test, train__epochs=4.0)
    assert result["accuracy"] > 0.9 > result["accuracy_majority"]
    assert 1 / 4 < result["accuracy_chance"] < 1 / 2

    validation = read_rows(workdir / "predictions" / "validation.jsonl")
    right = [line["index"] == line["expected"] for line in validation]
    assert sum(right) / 20 == result["accuracy"]
    losses = [-np.log(line["probabilities"][line["expected"]]) for line in validation]
    assert np.mean(losses) == pytest.approx(result["loss"], rel=1e-4)
    predicted = read_rows(workdir / "predictions" / "test.jsonl")
    assert [line["id"] for line in predicted] == ["q0", "q1", "q2"]
    read = {"id", "prompt", "choices"}
    assert set(predicted[0]) == read | {"index", "choice", "score", "probabilities"}
    assert [len(line["probabilities"]) for line in predicted] == [
        len(item["choices"]) for item in unlabelled
    ]

    model = bert_jax.load(workdir / "model")
    assert model.description.head == "multiple_choice"
    assert model.choose("it was", ["a sea .", "a dog .", "a tree .", "a song ."]).index == 1

    # The same model judged by the same items, in another way.
    again = experiment("multiple_choice", data__train=file).evaluate(model=workdir / "model")
    assert again["accuracy"] == result["accuracy"]
    assert again["loss"] == pytest.approx(result["loss"], rel=1e-5)


@pytest.fixture
def task(experiment, write_rows):
    items = [
        {"prompt": "the cat", "choices": ["sat .", "the sea was low ."], "label": 1},
        {"prompt": "it", "question": "was", "choices": ["up .", "down", "low"], "label": 0},
        {"prompt": "a dog", "choices": ["ran", "sang"], "label": 0},
    ]
    file = write_rows("train.jsonl", items)
    keys = {"data__train": file, "data__validation": file, "data__length": 16}
    return experiment("multiple_choice", **keys, train__global_batch_size=4).task


def test_a_batch_by_hand(task):
    (batch,) = task.train_batches(0, 1, host=0, hosts=1)
    # The last row fills up the batch.
    assert batch["labels"].tolist()[:3] == [0, 1, 0]
    assert batch["weights"].tolist() == [1, 1, 1, 0]
    assert batch["choice_mask"].astype(int).tolist() == [[1, 1, 1], [1, 1, 0], [1, 1, 0], [0] * 3]
    assert batch["input_ids"].shape == (4, 3, 16)
    assert text_of(batch, task, 0)[2] == "[CLS] it [SEP] was low [SEP]"
    assert text_of(batch, task, 1) == [
        "[CLS] the cat [SEP] sat . [SEP]",
        "[CLS] the cat [SEP] the sea was low . [SEP]",
        "",
    ]
    assert text_of(batch, task, 3) == ["", "", ""]


def text_of(batch, task, number):
    """The rows of an item as pieces, without padding."""
    rows = zip(batch["input_ids"][number], batch["attention_mask"][number], strict=True)
    return [" ".join(map(task.tokenizer.id_to_token, ids[mask > 0])) for ids, mask in rows]


def test_a_choice_that_is_not_there_cannot_be_chosen(task, monkeypatch):
    monkeypatch.setattr(task, "forward", lambda *_: np.array([[0.0, 0.0, 50.0], [0.0, 0.0, 50.0]]))
    batch = {
        "choice_mask": np.array([[True, True, False], [True, True, True]]),
        "labels": np.array([0, 2]),
        "weights": np.ones(2, np.float32),
    }
    sums = task.loss_sums({}, batch)[""]
    assert sums["loss"] == pytest.approx(np.log(2))
    assert sums["accuracy"] == 2


def test_a_model_that_chooses_keeps_its_head(chooser, experiment, write_rows, tmp_path):
    chooser.save(tmp_path / "model")
    file = write_rows("a.jsonl", animals(20))
    task = experiment("multiple_choice", tmp_path / "model", data__train=file).task
    assert task.description.config.num_labels == chooser.config.num_labels
    assert heads_to_reinitialize(chooser.description, task.description) == ()


def test_examples_without_an_answer_are_refused(train, write_rows, tmp_path):
    file = write_rows("train.jsonl", [{"prompt": "it was", "choices": ["low", "up"]}] * 20)
    with pytest.raises(UserError, match=r"train.jsonl:1: "):
        train("multiple_choice", data__train=file)
    assert not (tmp_path / "run").exists()
