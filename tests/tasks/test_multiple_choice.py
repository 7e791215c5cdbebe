"""Multiple choice, end to end: files in, a model directory and predictions out."""

import json
import random

import jax
import numpy as np
import pytest

import bert_jax
from bert_jax.config import complete_config, set_key
from bert_jax.errors import UserError
from bert_jax.experiment import Experiment
from bert_jax.models.config import Head
from bert_jax.models.encoder import init_params


def animals(count, seed=0):
    """Items whose right choice is the animal; two, three or four choices."""
    draw = random.Random(seed)
    for number in range(count):
        things = draw.sample(["mat", "tree", "sea", "song", "shell"], draw.choice([1, 2, 3]))
        label = draw.randrange(len(things) + 1)
        choices = [f"a {thing} ." for thing in things]
        choices.insert(label, f"a {draw.choice(['cat', 'dog', 'bird'])} .")
        yield {"id": f"q{number}", "prompt": "it was", "choices": choices, "label": label}


@pytest.fixture
def write_items(tmp_path):
    def write(name, items):
        path = tmp_path / name
        path.write_text("".join(json.dumps(item) + "\n" for item in items))
        return path

    return write


def config_of(base_model, **data):
    given = {"task": "multiple_choice", "init_from": str(base_model), "data": data}
    return complete_config(given, where="test")


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.slow
def test_the_right_choice_is_learned(train, write_items, base_model, tmp_path):
    file = write_items("train.jsonl", animals(200))
    unlabelled = list(animals(3, seed=1))
    for one in unlabelled:
        del one["label"]
    test = write_items("test.jsonl", unlabelled)
    result, workdir = train(
        "multiple_choice", data__train=str(file), data__test=(str(test),), train__epochs=4.0
    )
    assert result["accuracy"] > 0.9 > result["accuracy_majority"]
    assert 1 / 4 < result["accuracy_chance"] < 1 / 2

    validation = lines_of(workdir / "predictions" / "validation.jsonl")
    right = [line["index"] == line["expected"] for line in validation]
    assert sum(right) / 20 == result["accuracy"]
    losses = [-np.log(line["probabilities"][line["expected"]]) for line in validation]
    assert np.mean(losses) == pytest.approx(result["loss"], rel=1e-4)
    predicted = lines_of(workdir / "predictions" / "test.jsonl")
    assert [line["id"] for line in predicted] == ["q0", "q1", "q2"]
    assert set(predicted[0]) == {"id", "index", "choice", "score", "probabilities"}
    assert [len(line["probabilities"]) for line in predicted] == [
        len(item["choices"]) for item in unlabelled
    ]

    model = bert_jax.load(workdir / "model")
    assert model.description.head is Head.MULTIPLE_CHOICE
    assert model.choose("it was", ["a sea .", "a dog .", "a tree .", "a song ."]).index == 1

    # The same model judged by the same items, in another way.
    config = config_of(base_model, train=str(file), length=32)
    again = Experiment.from_config(config).evaluate(model=workdir / "model")
    assert again["accuracy"] == result["accuracy"]
    assert again["loss"] == pytest.approx(result["loss"], rel=1e-5)


@pytest.fixture
def task(base_model, write_items):
    items = [
        {"prompt": "the cat", "choices": ["sat .", "the sea was low ."], "label": 1},
        {"prompt": "it", "question": "was", "choices": ["up .", "down", "low"], "label": 0},
        {"prompt": "a dog", "choices": ["ran", "sang"], "label": 0},
    ]
    file = write_items("train.jsonl", items)
    config = config_of(base_model, train=str(file), validation=str(file), length=16)
    set_key(config, "train.global_batch_size", 4, where="test")
    return Experiment.from_config(config).task


def test_a_batch_by_hand(task):
    (batch,) = task.train_batches(0, 1, host=0, hosts=1)
    # The last row fills up the batch.
    assert batch["labels"].tolist()[:3] == [1, 0, 0]
    assert batch["weights"].tolist() == [1, 1, 1, 0]
    assert batch["choice_mask"].astype(int).tolist() == [[1, 1, 0], [1, 1, 0], [1, 1, 1], [0] * 3]
    assert batch["input_ids"].shape == (4, 3, 16)
    assert text_of(batch, task, 0) == [
        "[CLS] the cat [SEP] sat . [SEP]",
        "[CLS] the cat [SEP] the sea was low . [SEP]",
        "",
    ]
    assert text_of(batch, task, 2)[2] == "[CLS] it [SEP] was low [SEP]"
    assert text_of(batch, task, 3) == ["", "", ""]


def text_of(batch, task, number):
    """The rows of an item as pieces, without padding."""
    rows = zip(batch["input_ids"][number], batch["attention_mask"][number], strict=True)
    return [" ".join(map(task.tokenizer.id_to_token, ids[mask > 0])) for ids, mask in rows]


@pytest.mark.slow
def test_the_loss_does_not_see_choices_that_are_not_there(task):
    (batch,) = task.train_batches(0, 1, host=0, hosts=1)
    params = init_params(task.module, jax.random.key(3))
    apply = jax.jit(task.module.apply)
    (sums,) = jax.jit(task.loss_sums)(params, batch).values()
    expected, correct = [], 0
    for row, count, label in ((0, 2, 1), (1, 2, 0), (2, 3, 0)):
        arrays = [
            batch[name][row : row + 1, :count]
            for name in ("input_ids", "token_type_ids", "attention_mask")
        ]
        scores = np.asarray(apply({"params": params}, *arrays), np.float64)[0]
        expected.append(np.log(np.exp(scores).sum()) - scores[label])
        correct += int(scores.argmax() == label)
    assert sums["loss"] == pytest.approx(sum(expected), rel=1e-5)
    assert sums["accuracy"] == correct
    gradient = jax.jit(jax.grad(lambda params: task.loss_sums(params, batch)[""]["loss"]))(params)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


@pytest.mark.slow
def test_a_model_that_chooses_keeps_its_head(train, write_items, capsys):
    file = write_items("train.jsonl", animals(60))
    keys = {"data__train": str(file), "train__epochs": 1.0}
    first, workdir = train("multiple_choice", **keys)
    capsys.readouterr()
    again, _ = train(
        "multiple_choice", "again", workdir / "model", **keys, optimizer__learning_rate=1e-9
    )
    assert "new and untrained" not in capsys.readouterr().err
    assert again["accuracy"] == first["accuracy"]


def test_items_without_an_answer_are_nothing_to_learn_from(train, write_items, tmp_path):
    file = write_items("train.jsonl", [{"prompt": "it was", "choices": ["low", "up"]}] * 20)
    with pytest.raises(UserError, match=r"train.jsonl:1: "):
        train("multiple_choice", data__train=str(file))
    assert not (tmp_path / "run").exists()
