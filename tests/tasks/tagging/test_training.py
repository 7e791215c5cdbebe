"""Tagging, end to end: files in, a model directory and tagged files out."""

import itertools
import random

import jax
import numpy as np
import pytest

import bert_jax
from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.data.examples import Example, Sentence
from bert_jax.errors import UserError
from bert_jax.inference.evaluation import evaluate
from bert_jax.metrics.entities import EntityCounts
from bert_jax.models.execution import Execution
from bert_jax.models.head import with_fields
from bert_jax.models.heads.tagging import TaggingOptions
from bert_jax.sharding.mesh import one_device_mesh
from bert_jax.tasks.base.labelled_options import LabelledOptions
from bert_jax.tasks.base.splits import EvalSet, Splits
from bert_jax.tasks.base.task import means
from bert_jax.tasks.tagging.tags import TagSet
from bert_jax.tasks.tagging.task import TaggingTask
from tests.random_params import random_params

ANIMALS, PLACES = ["cat", "dog", "bird"], ["sea", "tree", "mat"]


def tagged(count, seed=0):
    """Sentences in IOB1: animals are names of one or two words, places of one."""
    draw = random.Random(seed)
    actual = []
    for _ in range(count):
        animals = draw.sample(ANIMALS, draw.choice([1, 2]))
        words = ["the", *animals, "was", "in", draw.choice(PLACES), "."]
        tags = ["O", *["I-ANIMAL"] * len(animals), "O", "O", "I-PLACE", "O"]
        actual.append((words, tags))
    return actual


def write(path, sentences, *, end="\n"):
    blocks = (
        end.join(f"{word} X {tag}" for word, tag in zip(*pair, strict=True)) for pair in sentences
    )
    text = f"-DOCSTART- X O{end}{end}" + (end + end).join(blocks) + end
    path.write_bytes(text.encode())
    return str(path)


def tag(directory, *sentences):
    return bert_jax.load(directory).tag(sentences)


@pytest.mark.slow
@pytest.mark.parametrize("use_crf", [False, True])
def test_names_are_learned(train, experiment, read_rows, tmp_path, use_crf):
    files = {
        "data__train": write(tmp_path / "train.txt", tagged(160)),
        "data__validation": (write(tmp_path / "dev.txt", tagged(20, 1), end="\r\n"),),
    }
    test = tmp_path / "test.txt"
    # Its last column is no tag.
    test.write_text("the X\ndog X\n\n\nthe X\ncat X\nwas X\nin X\nsea X\n. X\n")
    result, workdir = train(
        "tagging", **files, data__test=(str(test),), data__tag_column=-1, model__use_crf=use_crf,
        optimizer__learning_rate=1e-2, train__epochs=4.0,
    )  # fmt: skip
    assert result["f1"] > 0.95
    assert 0 < result["f1_lexicon"] <= 1

    labels = ("O", "B-ANIMAL", "B-PLACE", "I-ANIMAL", "I-PLACE")
    model = bert_jax.load(workdir / "model")
    assert model.description.labels == labels
    assert model.config.head_options(TaggingOptions).use_crf == use_crf
    (actual,) = tag(workdir / "model", "A dog bird was in the sea.")
    assert [(entity.type, entity.text, entity.start) for entity in actual.entities] == [
        ("ANIMAL", "dog bird", 2),
        ("PLACE", "sea", 22),
    ]

    predictions = workdir / "predictions"
    source_lines = (tmp_path / "dev.txt").read_bytes().decode().split("\r\n")
    columns = (predictions / "validation.conll").read_bytes().decode().split("\r\n")
    assert [line.rpartition(" ")[0] for line in columns] == source_lines
    # Tags of the file's own scheme; scored again, they have the same score.
    blocks = [block.split("\r\n") for block in "\r\n".join(columns[2:-1]).split("\r\n\r\n")]
    gold, actual = ([[line.split()[at] for line in lines] for lines in blocks] for at in (2, 3))
    counts = EntityCounts.from_tags(gold, actual)
    assert (counts.overall.f1, counts.accuracy) == (result["f1"], result["accuracy"])
    assert "ANIMAL: precision:" in (predictions / "validation.report.txt").read_text()
    assert (predictions / "validation.confusion.png").is_file()
    first = read_rows(predictions / "validation.jsonl")[0]
    assert set(first) == {"id", "expected", "words", "tags", "scores", "entities"}
    assert set(first["expected"] + first["tags"]) <= {"O", "I-ANIMAL", "B-ANIMAL", "I-PLACE"}
    assert (predictions / "test.conll").read_text() == (
        "the X O\ndog X B-ANIMAL\n\n\n"
        "the X O\ncat X B-ANIMAL\nwas X O\nin X O\nsea X B-PLACE\n. X O\n"
    )

    # The same model evaluated on the same sentences by another path.
    evaluation = experiment("tagging", base="", data__validation=files["data__validation"])
    again = evaluation.evaluate(model=workdir / "model")
    assert {name: again[name] for name in ("f1", "accuracy")} == {
        name: result[name] for name in ("f1", "accuracy")
    }


@pytest.mark.slow
def test_parts_of_speech(train, write_rows):
    tags = {"the": "DT", "was": "VB", "in": "IN", ".": "."}
    sentences = [(words, [tags.get(word, "NN") for word in words]) for words, _ in tagged(160)]
    path = write_rows("train.jsonl", [{"tokens": w, "tags": t} for w, t in sentences])
    result, workdir = train(
        "tagging", data__train=path, data__class_weights="balanced",
        optimizer__learning_rate=1e-2, train__epochs=2.0,
    )  # fmt: skip
    assert result["accuracy"] > 0.95
    assert "f1" not in result
    assert result["accuracy_lexicon"] == 1
    (actual,) = tag(workdir / "model", ["the", "shell", "was", "in", "a", "song"])
    assert actual.tags[2:4] == ("VB", "IN")
    assert actual.entities == ()
    assert (workdir / "predictions" / "validation.conll").is_file()


@pytest.fixture(scope="module")
def make_task(tiny_config, tokenizer):
    """A task of one sentence of 9 words, and parameters for its model."""
    words = ["the", "cat", "dogs", "sat", "on", "zzz", "mat", "walked", "."]
    tags = ["O", "B-A", "I-A", "O", "O", "B-A", "I-A", "I-A", "O"]
    example = Example(Sentence(tuple(words)), tuple(tags), "0", "f:1")

    def make(length, *, use_crf=True):
        config = with_fields(tiny_config, {"num_labels": 3, "use_crf": use_crf})
        labels = ("O", "B-A", "I-A")
        description = ModelDescription(config, "tagging", labels=labels)
        part = EvalSet("validation", "f", [example])
        task = TaggingTask(
            splits=Splits([example], [example], [part], []),
            tokenizer=tokenizer,
            description=description,
            execution=Execution(),
            options=LabelledOptions("f1", batch_size=4, length=length, seed=0),
            tag_set=TagSet(labels, "iob2"),
        )
        return task, random_params(task.module, scale=0.3)

    return make


def loss_and_scores(task, params):
    """Loss and accuracy of the one batch, and the logits of the sentence without its padding."""
    (batch,) = task.train_batches(0, 1, host=0, hosts=1)
    row = int(batch["attention_mask"].sum(axis=1).argmax())

    @jax.jit
    def compute(params, batch):
        logits = task.module.apply({"params": params}, batch["input_ids"][row : row + 1, :13])
        return means(task.loss_sums(params, batch), task.loss_weights(batch)), logits[0]

    actual, logits = compute(params, batch)
    # [CLS] the cat dog ##s sat on [UNK] mat walk ##ed . [SEP]
    first_tokens = [1, 2, 3, 5, 6, 7, 8, 9, 11]
    return float(actual["loss"]), float(actual["accuracy"]), np.float64(logits)[first_tokens]


def test_the_loss_is_that_of_first_tokens(make_task):
    loss, accuracy, scores = loss_and_scores(*make_task(32, use_crf=False))
    gold = [0, 1, 2, 0, 0, 1, 2, 2, 0]
    probabilities = scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)
    expected = -np.mean([probabilities[index, label] for index, label in enumerate(gold)])
    assert loss == pytest.approx(expected, rel=1e-5)
    assert accuracy == pytest.approx(np.mean(probabilities.argmax(axis=-1) == np.array(gold)))


def test_the_loss_of_a_chain_is_that_of_all_paths_that_the_scheme_allows(make_task):
    task, params = make_task(32)
    loss, accuracy, scores = loss_and_scores(task, params)
    start, end, transitions = (
        np.asarray(params[name], np.float64) for name in ("crf_start", "crf_end", "crf_transitions")
    )

    def score(path):
        total = start[path[0]] + end[path[-1]]
        total += sum(scores[index, label] for index, label in enumerate(path))
        return total + sum(transitions[pair] for pair in itertools.pairwise(path))

    allowed = [
        path
        for path in itertools.product(range(3), repeat=9)
        if path[0] != 2 and (0, 2) not in itertools.pairwise(path)
    ]
    totals = np.array([score(path) for path in allowed])
    gold = (0, 1, 2, 0, 0, 1, 2, 2, 0)
    assert loss == pytest.approx((np.logaddexp.reduce(totals) - score(gold)) / 9, rel=1e-4)
    assert accuracy == pytest.approx(np.equal(allowed[totals.argmax()], gold).mean())


def test_windows_are_learned_with_the_tags_beside_them(make_task):
    task, params = make_task(8)
    assert task.examples_per_epoch == 3
    (batch,) = task.train_batches(0, 1, host=0, hosts=1)
    # the cat dogs sat | on zzz mat | walked . and a row of padding.
    assert sorted(batch["label_before"].tolist()) == [-1, -1, 0, 2]
    assert sorted(batch["label_after"].tolist()) == [-1, -1, 0, 2]
    gradient = jax.jit(jax.grad(lambda params, batch: task.loss_sums(params, batch)[""]["loss"]))(
        params, batch
    )
    # No window knows the whole of I-A → O → O → B-A …, but all steps of it are learned.
    actual = np.asarray(gradient["crf_transitions"])
    assert np.isfinite(actual).all()
    assert (actual[[0, 1, 2, 2, 0], [1, 2, 0, 2, 0]] != 0).all()
    assert actual[0, 2] == 0  # O → I-A is forbidden, so it has no share
    # Only one sentence begins and ends here: the gradients are those of two probabilities.
    start = np.asarray(gradient["crf_start"])
    assert start[0] < 0 < start[1]
    assert start.sum() == pytest.approx(0, abs=1e-5)
    assert start[2] == 0


@pytest.mark.slow
def test_evaluation_and_its_baseline(make_task):
    task, params = make_task(8)
    actual = evaluate(task, params, one_device_mesh())
    assert set(actual.metrics) == {"f1", "precision", "recall", "accuracy"}
    assert [len(made) for made in actual.predictions.values()] == [1]
    assert task.evaluator.baselines() == {
        "f1_lexicon": 1.0, "precision_lexicon": 1.0, "recall_lexicon": 1.0, "accuracy_lexicon": 1.0
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "keys", "message"),
    [
        ("a\nb\n", {}, r"train.txt:1: the words have no tags; .*data.tag_column"),
        ("a B-X\n\n" * 9, {"data__scheme": "iob"}, r"data.scheme is 'iob'"),
        ("a B-X\n\n" * 9, {"data__class_weights": "x"}, r"data.class_weights is 'x'"),
        (
            "a B-X\n\n" * 9,
            {"data__class_weights": "balanced", "model__use_crf": True},
            r"with a CRF the loss is of whole paths",
        ),
        ("a B-X\n\n" * 9, {"data__length": 2}, r"data.length is 2; it must be at least 3"),
    ],
)
def test_bad_files_are_refused_before_anything_is_made(train, tmp_path, text, keys, message):
    path = tmp_path / "train.txt"
    path.write_text(text)
    with pytest.raises(UserError, match=message):
        train("tagging", data__train=str(path), data__validation_fraction=0.3, **keys)
    assert not (tmp_path / "run").exists()


def test_unknown_validation_tags_are_refused(train, tmp_path):
    path, strange = write(tmp_path / "train.txt", tagged(20)), tmp_path / "dev.txt"
    strange.write_text("a X O\nb X B-PLANT\n")
    with pytest.raises(UserError, match=r"dev.txt:1: the tag 'B-PLANT' of 'b' is unknown to the"):
        train("tagging", data__train=path, data__validation=(str(strange),))


def test_rare_tags_that_are_not_drawn_are_known(experiment, tmp_path):
    train, rare = write(tmp_path / "train.txt", tagged(20)), tmp_path / "dev.txt"
    rare.write_text("a X O\nb X B-PLANT\n")
    with open(train, "a") as file:
        file.write("\na X O\nrose X I-PLANT\n")
    task = experiment("tagging", data__train=train, data__validation=rare, data__limit=2).task
    assert "I-PLANT" in task.description.labels
    assert not any("rose" in example.input.words for example in task.splits.train)
