"""Words for masks, by a model whose answers are known and against a plain call of the module."""

import dataclasses

import jax
import numpy as np
import pytest

from bert_jax.errors import NotFiniteError, UserError
from bert_jax.families.bert import FAMILY as BERT

TEXT = "The [MASK] was long."


@pytest.fixture(scope="module")
def song_model(make_model, tokenizer):
    """Answers "song", then "sun", then "sea" everywhere: only the output bias counts."""

    def make(head):
        model = make_model(head)
        params = jax.tree.map(np.zeros_like, model.params)
        for word, score in {"song": 3.0, "sun": 2.0, "sea": 1.0}.items():
            params["mlm_head"]["bias"][tokenizer.token_to_id(word)] = score
        return dataclasses.replace(model, params=params)

    return make


@pytest.mark.parametrize("head", ["pretraining", "masked_lm"])
def test_fillings_by_hand(song_model, head):
    fillings = song_model(head).fill_mask(TEXT, top_k=6)
    # Equal scores stand in the order of the vocabulary.
    assert [filling.token_id for filling in fillings] == [16, 17, 18, 0, 1, 2]
    actual = fillings[:3]
    assert [filling.token for filling in actual] == ["song", "sun", "sea"]
    assert [filling.text for filling in actual] == [
        "the song was long.",
        "the sun was long.",
        "the sea was long.",
    ]
    total = np.exp([3.0, 2.0, 1.0]).sum() + 37
    np.testing.assert_allclose(
        [filling.score for filling in actual], np.exp([3.0, 2.0, 1.0]) / total, rtol=1e-5
    )


@pytest.mark.slow
def test_words_that_are_compared(song_model):
    model = song_model("masked_lm")
    by_word = {each.token: each.score for each in model.fill_mask(TEXT, top_k=40)}
    made = model.fill_mask(TEXT, targets=["sea", "cat", "song", "sea"])
    assert [each.token for each in made] == ["song", "sea", "cat"]
    assert [each.score for each in made] == [by_word[each.token] for each in made]
    (best,) = model.fill_mask(TEXT, 1, targets=["Sun"])  # a word of one piece
    assert (best.token, best.text) == ("sun", "the sun was long.")
    for target in ("Xylophone", "the sea", ""):
        with pytest.raises(UserError, match="one piece"):
            model.fill_mask(TEXT, targets=[target])


def test_scores_that_are_no_numbers_are_no_answers(model):
    damaged = jax.tree.map(lambda leaf: np.full(leaf.shape, np.nan, np.float32), model.params)
    with pytest.raises(NotFiniteError, match="the scores of words for a mask are not finite"):
        dataclasses.replace(model, params=damaged).fill_mask(TEXT, top_k=40)


def test_all_scores_sum_to_one(model):
    actual = model.fill_mask(TEXT, top_k=1000)
    assert len(actual) == 40
    assert sum(filling.score for filling in actual) == pytest.approx(1.0)
    assert [filling.score for filling in actual] == sorted(
        (filling.score for filling in actual), reverse=True
    )


@pytest.mark.slow
def test_scores_are_those_of_the_module(model, tokenizer):
    text = "the cat [MASK] on the [MASK] ."
    (encoding,) = tokenizer.encode_batch([text])
    apply = jax.jit(model.module.apply)
    logits = apply({"params": model.params}, np.array([encoding.ids])).prediction_logits
    scores = np.exp(np.float64(logits[0]))
    probabilities = scores / scores.sum(axis=-1, keepdims=True)
    # Among others, so that there is padding.
    (*_, actual) = model.fill_masks(["[MASK]", "it was long and warm . " * 3 + "[MASK]", text], 40)
    assert len(actual) == 2
    for position, fillings in zip((3, 6), actual, strict=True):
        for filling in fillings:
            expected = probabilities[position, filling.token_id]
            assert filling.score == pytest.approx(float(expected), abs=1e-6)


def test_several_texts_and_masks(song_model):
    model = song_model("masked_lm")
    texts = ["a [MASK]", "the [MASK] and the [MASK] .", ("one [MASK]", "it ran")]
    assert [[filling.text for filling in fillings] for fillings in model.fill_mask(texts, 2)] == [
        ["a song", "a sun"],
        # The other mask stays.
        ["the song and the [MASK].", "the sun and the [MASK]."],
        ["one song it ran", "one sun it ran"],
    ]
    actual = model.fill_masks(texts, 1)
    assert [[[filling.text for filling in mask] for mask in masks] for masks in actual] == [
        [["a song"]],
        [["the song and the [MASK]."], ["the [MASK] and the song."]],
        [["one song it ran"]],
    ]
    assert model.fill_mask([]) == []


def test_ids_beyond_the_tokenizer_are_never_proposed(make_model):
    model = make_model("masked_lm", vocab_size=64)
    params = jax.tree.map(np.zeros_like, model.params)
    params["mlm_head"]["bias"][40:] = 100.0
    params["mlm_head"]["bias"][39] = 1.0
    actual = dataclasses.replace(model, params=params).fill_mask("[MASK]", 2)
    assert actual[0].token == "##er"
    assert actual[0].score == pytest.approx(np.e / (np.e + 39))


def test_texts_that_cannot_be_filled(model):
    with pytest.raises(UserError, match=r"the text has no \[MASK\]: 'The sun was long.'"):
        model.fill_mask("The sun was long.")
    with pytest.raises(UserError, match=r"the text has no \[MASK\]: 'a sea'") as caught:
        model.fill_mask(["[MASK]", "a [MASK]", "a sea"], batch_size=2)
    assert caught.value.index == 2
    with pytest.raises(UserError, match="the text has 43 tokens, the model takes 32; shorten it"):
        model.fill_mask("the [MASK] " * 20 + ".")
    with pytest.raises(UserError, match="top_k is 0; it must be at least 1"):
        model.fill_mask("[MASK]", top_k=0)


def test_long_texts_are_cut_with_max_length(model):
    actual = model.fill_mask("the [MASK] " + "sun " * 99, top_k=1, max_length=32)
    assert actual[0].text.count("sun") >= 28
    with pytest.raises(UserError, match=r"the text has no \[MASK\]: 'sun sun"):
        model.fill_mask("sun " * 99 + "[MASK]", max_length=32)


def test_a_model_without_the_head(make_model):
    for head in ("encoder", "classification"):
        with pytest.raises(UserError, match=f"this {BERT.class_names[head]} does not fill"):
            make_model(head).fill_mask("[MASK]")


def test_one_line_says_that_a_text_has_more_masks(song_model, capsys):
    model = song_model("masked_lm")
    model.fill_mask([TEXT, "the [MASK] was [MASK]"])
    assert capsys.readouterr().err == (
        "1 of 2 texts have several masks, of which the first is filled; fill_masks fills all\n"
    )
