"""The reader: rows, batches and losses by hand, what is learned, the written model, errors."""

import functools
import json
import random

import jax
import numpy as np
import pytest

import bert_jax
from bert_jax.data.examples import Candidates
from bert_jax.errors import UserError
from bert_jax.models.heads.reader import ReaderOutput
from bert_jax.tasks.base.model_init import initial_params
from bert_jax.tasks.base.predictor import ExampleError
from bert_jax.tasks.question_answering.spans import AnswerSpan
from bert_jax.tasks.reader.predict import PassageRows, ReadAnswer, best_answer

FAMILY = "dpr"


def text_of(tokenizer, ids, mask=None):
    kept = ids if mask is None else ids[mask > 0]
    return " ".join(map(tokenizer.id_to_token, kept))


def test_the_rows_of_a_question(tokenizer):
    example = Candidates("The cat", (("the sea", "it sat down ."), "a tree"))
    encoded, empty = PassageRows(tokenizer, 32)([example, Candidates("the", ())])
    assert [text_of(tokenizer, row.ids) for row in encoded.rows] == [
        "[CLS] the cat [SEP] the sea [SEP] it sat down .",
        "[CLS] the cat [SEP] [SEP] a tree",
    ]
    row = encoded.rows[0]
    assert row.type_ids == [0] * 11
    assert row.positions == row.max_context == (7, 11)
    assert row.offsets[7:] == [(0, 2), (3, 6), (7, 11), (12, 13)]
    assert isinstance(empty, ExampleError)
    # Half of a row for the question, half of the rest for the title.
    ((cut,),) = [
        each.rows
        for each in PassageRows(tokenizer, 9)(
            [Candidates("the cat sat down .", (("the sea was", "it was long"),))]
        )
    ]
    assert text_of(tokenizer, cut.ids) == "[CLS] the cat sat [SEP] the [SEP] it was"
    assert cut.is_cut
    with pytest.raises(UserError, match="max_length is 6; a question, a title and a text need at"):
        PassageRows(tokenizer, 6)


ROWS = [
    {
        "question": "it was",
        "answers": ["The Cat", "cat"],
        "passages": [
            {"text": "a tree"},
            {"title": "the cat", "text": "the cat and the cat"},
            {"text": "the sea"},
            {"text": "a cat"},  # another passage with an answer
            {"text": "it sat"},
        ],
    },
    {
        "question": "a song",
        "answers": ["sat"],
        "positive_ctxs": [{"title": "", "text": "it sat"}],
        "hard_negative_ctxs": [],
    },
    {"question": "a song", "answers": ["shell"], "passages": ["it sat"]},
]


@pytest.fixture
def task(experiment, write_rows):
    file = write_rows("train.jsonl", ROWS)
    keys = {"data__train": file, "data__validation": file, "model__family": FAMILY}
    return experiment("reader", **keys, data__passages=3, train__global_batch_size=4).task


def test_a_model_of_question_answering_begins_a_reader(
    experiment, make_model, write_rows, tmp_path, capsys
):
    make_model("question_answering").save(tmp_path / "model")
    file = write_rows("train.jsonl", ROWS)
    keys = {"data__train": file, "data__validation": file, "model__family": FAMILY}
    made = experiment("reader", base=tmp_path / "model", **keys)
    initial_params(made.model_init, made.task, made.mesh, seed=0)
    printed = capsys.readouterr().err
    assert printed.endswith("new and untrained: relevance/bias, relevance/kernel\n")
    assert "leaves out" not in printed


def test_a_batch_by_hand(task):
    (batch,) = task.train_batches(0, 1, host=0, hosts=1)
    tokens = zip(batch["input_ids"], batch["attention_mask"], strict=True)
    texts = [[text_of(task.tokenizer, *row) for row in zip(*rows, strict=True)] for rows in tokens]
    order = [text[0].startswith("[CLS] it was") for text in texts].index(True)
    assert texts[order] == [
        "[CLS] it was [SEP] the cat [SEP] the cat and the cat",
        "[CLS] it was [SEP] [SEP] a tree",
        "[CLS] it was [SEP] [SEP] the sea",
    ]
    assert texts[1 - order] == ["[CLS] a song [SEP] [SEP] it sat", "", ""]
    spans = [[7, 8], [10, 11], [8, 8], [11, 11]]
    assert batch["labels"][order].tolist() == spans + [[-1, -1]] * 6
    assert batch["labels"][1 - order].tolist() == [[6, 6]] + [[-1, -1]] * 9
    assert (batch["labels"][2:] == -1).all()
    assert batch["weights"].tolist() == [1, 1, 0, 0]
    assert task.reading_report() == (
        f"1 of 3 training questions have no passage with an answer: left out "
        f"({task.splits.train[2].location})",
    )


def test_the_loss_by_hand(task):
    """Two places of answers with the probabilities 1/8 · 1/2 and 1/2 · 1/4."""
    log = np.log(np.array([[1, 4, 2, 1], [2, 1, 4, 1]], np.float32))
    logits = np.full((2, 2, 2, 5), 50, np.float32)  # kinds, B, K, T; the last token is padding
    logits[:, 0, 0, :4] = log
    mask = np.zeros((2, 2, 5), np.int32)
    mask[0, 0, :4] = mask[1, 0, :4] = 1  # the second question has one passage
    mask[0, 1, :4] = 1
    labels = np.full((2, 10, 2), -1, np.int32)
    labels[0, :2] = [[0, 2], [1, 0]]
    outputs = ReaderOutput(*logits, np.log(np.array([[1, 3], [1, 3]], np.float32)))
    batch = {"attention_mask": mask, "labels": labels, "weights": np.ones(2, np.float32)}

    @jax.jit
    @functools.partial(jax.grad, has_aux=True)
    def gradients(outputs):
        sums = task.loss({}, outputs, batch)
        return sum(part["loss"] for part in sums.values()), sums

    gradient, sums = gradients(outputs)
    assert float(sums["relevance"]["loss"]) == pytest.approx(np.log(4), rel=1e-6)
    assert float(sums["relevance"]["accuracy"]) == 1
    assert float(sums["span"]["loss"]) == pytest.approx(-np.log(1 / 16 + 1 / 8), rel=1e-6)
    assert {part: float(total) for part, total in task.loss_weights(batch).items()} == {
        "relevance": 2,
        "span": 2,
    }
    assert all(np.isfinite(array).all() for array in gradient)
    assert not gradient.start_logits[0, 1].any()  # only the positive has answers
    assert not gradient.start_logits[1].any()
    assert not gradient.start_logits[..., 4].any()


def test_metrics_by_hand(task):
    examples, evaluator = task.splits.validation[0].examples, task.evaluator
    predictions = [
        ReadAnswer(3, AnswerSpan("the Cat", 0, 7, 0.0, 0.0), 0.0, 1.0),
        ReadAnswer(0, AnswerSpan("it sat", 0, 6, 0.0, 0.0), 0.0, 1.0),
        None,
    ]
    assert evaluator.metrics(examples, predictions) == {
        "exact_match": pytest.approx(100 / 3),
        "f1": pytest.approx((100 + 200 / 3) / 3),
        "passage_accuracy": pytest.approx(2 / 3),
    }
    assert evaluator.baseline_metrics(examples) == {"passage_accuracy_first": pytest.approx(1 / 3)}


def test_the_best_span_of_the_most_relevant_passage_with_a_token(tokenizer):
    """Of twelve tokens the first and the last belong together, but an answer has ten at most."""
    example = Candidates("it", ("the cat", "the " * 12, ""))
    (encoded,) = PassageRows(tokenizer, 32)([example])
    start, stop = encoded.rows[1].positions
    logits = np.zeros((3, 2, 32), np.float32)
    logits[1, 0, start], logits[1, 1, stop - 1] = 9, 9
    logits[1, 1, start + 3], logits[1, 1, start - 1] = 3, 50  # the latter is no passage
    outputs = [
        ReaderOutput(*pair, np.float32(rank)) for pair, rank in zip(logits, (1, 2, 3), strict=True)
    ]
    answer = best_answer(example, encoded.rows, outputs)
    assert (answer.passage, answer.relevance, answer.score) == (1, 2.0, 12.0)
    assert (answer.span.text, answer.span.start) == ("the the the the", 0)


def test_packed_rows_have_the_same_loss(task):
    (batch,) = task.train_batches(0, 1, host=0, hosts=1)
    inputs = task.inputs(batch)
    params = jax.jit(task.module.init)(jax.random.key(0), inputs)["params"]
    packed = task.pack_rows(batch, 1)
    assert "pack_indices" in packed
    plain, other = (jax.jit(task.loss_sums)(params, each) for each in (batch, packed))
    assert jax.tree.map(float, plain) == {
        part: pytest.approx(jax.tree.map(float, values), rel=1e-5) for part, values in other.items()
    }


def questions(count, seed=0):
    """The answer is the animal that sat; of the other passages, none says who sat."""
    draw, animals = random.Random(seed), ["cat", "dog", "bird"]
    for number in range(count):
        animal, *others = draw.sample(animals, 3)
        passages = [f"the {animal} sat", *(f"a {other} ran" for other in others), "the sea"]
        draw.shuffle(passages)
        yield {
            "id": f"q{number}",
            "question": "one sat",
            "answers": [animal],
            "passages": [{"title": "the song", "text": text} for text in passages],
        }


@pytest.mark.slow
def test_a_training_chooses_passages_and_answers(train, write_rows):
    files = {
        "data__train": write_rows("train.jsonl", questions(64)),
        "data__validation": write_rows("validation.jsonl", questions(24, seed=1)),
    }
    result, workdir = train(
        "reader",
        **files,
        model__family=FAMILY,
        data__passages=4,
        data__length=16,
        train__epochs=2.0,
        train__global_batch_size=16,
        optimizer__learning_rate=1e-2,
    )
    assert result["passage_accuracy"] > 0.9
    assert result["exact_match"] > 70
    model = bert_jax.load(workdir / "model")
    assert model.description.class_name == "DPRReader"
    lines = (workdir / "predictions" / "validation.jsonl").read_text().splitlines()
    first, example = json.loads(lines[0]), next(questions(24, seed=1))
    assert first["expected"] == example["answers"]
    text = example["passages"][first["passage"]]["text"]
    assert text[first["start"] : first["end"]] == first["answer"]


def test_data_that_cannot_be_trained_on(experiment, write_rows):
    good = {"question": "it", "answers": ["cat"], "passages": ["a cat", " a dog"]}

    good_file = write_rows("good.jsonl", [good])

    def task(change, **keys):
        keys |= {"data__train": write_rows("train.jsonl", [good | change])}
        keys |= {"data__validation": good_file, "model__family": FAMILY}
        return experiment("reader", **keys).task

    for change, keys, message in [
        ({"answers": None}, {}, r"train.jsonl:1: the question has no answers to train on; give"),
        ({"answers": ["ran"]}, {}, "no training question has a passage with an answer"),
        ({"passages": ["a cat", ""]}, {}, r"train.jsonl:1: a document is empty; "),
        ({"passages": []}, {}, r"train.jsonl:1: the question has no passages; give some, or rem"),
        ({}, {"data__corpus": "x"}, "data.corpus is 'x'; leave it out: a reader's file has text"),
        ({}, {"data__passages": 0}, "data.passages is 0; it must be at least 1"),
    ]:
        with pytest.raises(UserError, match=message):
            _ = task(change, **keys).rows
    with pytest.raises(UserError, match="bert models have no head reader"):
        _ = experiment("reader", data__train=good_file, data__validation=good_file).task
