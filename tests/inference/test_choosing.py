"""Choices are rows of their own, and an item may have any number of them."""

import dataclasses
import itertools

import numpy as np
import pytest

from bert_jax.data.examples import ChoiceExample
from bert_jax.errors import UserError
from bert_jax.models.config import Head
from bert_jax.tasks.base.predictor import TextError
from bert_jax.tasks.multiple_choice.decoding import (
    Choice,
    ChoiceEncoder,
    as_record,
    best_choice,
    choose,
    logits,
)


def item(prompt, *choices, question=""):
    return ChoiceExample(prompt, choices, None, "0", "here:1", question)


ITEMS = [
    item("the cat", "sat on the mat .", "sang"),
    item("a bird was in the tree", "it sang .", "it ran .", "it walked .", "a dog was warm ."),
    item("the sea", "was low", "was long", "was a song", question="it"),
]


@pytest.fixture(scope="module")
def chooser(make_model):
    return make_model(Head.MULTIPLE_CHOICE)


def test_rows_by_hand(tokenizer, tiny_config):
    encode = ChoiceEncoder(tokenizer, tiny_config, 32)
    (first, second), (asked, _, _) = encode([ITEMS[0], ITEMS[2]])
    assert " ".join(first.tokens) == "[CLS] the cat [SEP] sat on the mat . [SEP]"
    assert first.type_ids == [0, 0, 0, 0, 1, 1, 1, 1, 1, 1]
    assert " ".join(second.tokens) == "[CLS] the cat [SEP] sang [SEP]"
    # The question stands with the choice, as in Hugging Face's examples.
    assert " ".join(asked.tokens) == "[CLS] the sea [SEP] it was low [SEP]"


def test_a_long_prompt_is_cut_and_the_choice_stays(tokenizer, tiny_config, capsys):
    encode = ChoiceEncoder(tokenizer, tiny_config, 10)
    ((first, second),) = encode([item("the cat " * 9, "sang .", "the dog ran to the tree .")])
    assert " ".join(first.tokens) == "[CLS] the cat the cat the [SEP] sang . [SEP]"
    # What is longer than half of the room is cut, too.
    assert " ".join(second.tokens) == "[CLS] the cat the cat [SEP] the dog ran [SEP]"
    encode.report()
    assert capsys.readouterr().err == "2 of 2 texts were longer than 10 tokens: cut\n"


@pytest.mark.parametrize(
    "batch_size", [3, *(pytest.param(size, marks=pytest.mark.slow) for size in (1, 32))]
)
def test_scores_are_those_of_the_model_for_all_choices_at_once(chooser, batch_size):
    found = list(logits(chooser, ITEMS, batch_size=batch_size))
    assert [scores.shape for scores in found] == [(2,), (4,), (3,)]
    for one, scores in zip(ITEMS, found, strict=True):
        prompts = [one.prompt] * len(one.choices)
        choices = [f"{one.question} {choice}".strip() for choice in one.choices]
        rows = chooser.tokenizer.encode_batch(prompts, choices)
        arrays = np.zeros((3, 1, len(rows), 24), np.int32)  # 1CT
        for number, row in enumerate(rows):
            for array, values in zip(arrays, (row.ids, row.type_ids, [1] * len(row)), strict=True):
                array[0, number, : len(row)] = values
        expected = chooser.module.apply({"params": chooser.params}, *arrays)
        np.testing.assert_allclose(scores, expected[0], atol=1e-5)


def test_the_best_choice_by_hand():
    found = best_choice(["a", "b", "c"], np.log(np.array([2, 5, 3], np.float32)))
    assert (found.index, found.choice) == (1, "b")
    assert found.score == pytest.approx(0.5)
    assert found.probabilities == pytest.approx((0.2, 0.5, 0.3))
    assert best_choice(["a", "b"], np.zeros(2, np.float32)).index == 0
    assert as_record(Choice(1, "b", 0.75, (0.25, 0.75))) == {
        "index": 1,
        "choice": "b",
        "score": 0.75,
        "probabilities": [0.25, 0.75],
    }


def test_one_prompt_or_many(chooser):
    one = choose(chooser, "the cat", ["sat on the mat .", "sang"])
    assert one.choice in ("sat on the mat .", "sang")
    assert sum(one.probabilities) == pytest.approx(1)
    many = choose(chooser, ["the cat", "the sea"], [["sat on the mat .", "sang"], list("abc")])
    assert many[0].probabilities == pytest.approx(one.probabilities, abs=1e-6)
    assert len(many[1].probabilities) == 3
    asked = choose(chooser, "the sea", ["was low", "was long", "was a song"], "it")
    (expected,) = logits(chooser, [ITEMS[2]])
    assert asked.index == expected.argmax()
    assert choose(chooser, [], []) == []


def test_a_stream_without_end(chooser):
    items = (ITEMS[number % 3] for number in itertools.count())
    found = itertools.islice(logits(chooser, items, batch_size=2), 200)
    assert [len(scores) for scores in found] == [2, 4, 3] * 66 + [2, 4]


def test_what_cannot_be_chosen(chooser, model):
    with pytest.raises(UserError, match="this BertForPreTraining does not choose; give"):
        choose(model, "the cat", ["sat", "ran"])
    with pytest.raises(UserError, match="the choices are one string, 'sat'"):
        choose(chooser, "the cat", "sat")
    with pytest.raises(UserError, match="1 choices; give two or more"):
        choose(chooser, "the cat", ["sat"])
    with pytest.raises(UserError, match="2 prompts, 1 lists of choices, 2 questions"):
        choose(chooser, ["the cat", "the sea"], [["sat", "ran"]])
    with pytest.raises(TextError, match="7 is no text") as caught:
        list(logits(chooser, [ITEMS[0], item("a", "b", 7)]))
    assert caught.value.index == 1
    with pytest.raises(UserError, match="max_length is 64; this model takes 3 to 32 tokens"):
        logits(chooser, ITEMS, max_length=64)


def test_a_model_of_one_segment_is_refused(tokenizer, tiny_config):
    with pytest.raises(UserError, match="type_vocab_size 1; give another model"):
        ChoiceEncoder(tokenizer, dataclasses.replace(tiny_config, type_vocab_size=1), 32)


@pytest.mark.slow
def test_equal_to_transformers(chooser, tmp_path):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    chooser.save(tmp_path)
    theirs = transformers.BertForMultipleChoice.from_pretrained(tmp_path).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    items = [*ITEMS, item("the cat ran to the sea " * 4, "it was warm .", "a song was sung . " * 5)]
    found = logits(chooser, items, max_length=24)
    for one, scores in zip(items, found, strict=True):
        # As examples/pytorch/multiple-choice/run_swag.py makes its rows.
        rows = tokenizer(
            [one.prompt] * len(one.choices),
            [f"{one.question} {choice}".strip() for choice in one.choices],
            truncation=True, max_length=24, padding=True, return_tensors="pt",
        )  # fmt: skip
        with torch.no_grad():
            expected = theirs(**{name: array[None] for name, array in rows.items()}).logits[0]
        np.testing.assert_allclose(scores, expected.numpy(), atol=1e-5)
