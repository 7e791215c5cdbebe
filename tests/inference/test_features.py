"""Vectors, hidden states and attention against a plain call of the module."""

import dataclasses
import functools

import jax
import numpy as np
import pytest

from bert_jax.errors import UserError
from bert_jax.models.encoder import Encoder, RequestedOutputs
from bert_jax.models.execution import Execution
from bert_jax.models.heads.text_vectors import TextVectors
from bert_jax.tasks.embed import TextPreparation

# 11, 2, 11, 23, 11 and 11 tokens: in a batch of 8 they are one shape, alone they are three.
TEXTS = [
    "the cat sat down on the warm mat .",
    "",
    ("the dog ran up", "it was warm ."),
    "one found a shell . it was long and warm . the sun went down to the sea and up .",
    "the boys walked to the sea .",
    ("the dog ran up to the tree .", ""),
]


@functools.partial(jax.jit, static_argnames="encoder")
def encode(params, ids, type_ids, encoder):
    requested = RequestedOutputs(hidden_states=True, attentions=True)
    return encoder.apply({"params": params}, ids, type_ids, encoder_outputs=requested)


def alone(model, text):
    """A text by itself, unpadded, through the encoder: the reference."""
    first, pair = ([text], None) if isinstance(text, str) else ([text[0]], [text[1]])
    (encoding,) = model.tokenizer.encode_batch(first, pair)
    params = model.params.get("bert", model.params)
    encoder = Encoder(model.config, add_pooling_layer="pooler" in params)
    output = encode(params, np.array([encoding.ids]), np.array([encoding.type_ids]), encoder)
    return jax.tree.map(np.asarray, output)


def assert_close(actual, expected):
    np.testing.assert_allclose(actual, expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("pooling", "reference"),
    [
        ("cls", lambda output: output.last_hidden_state[0, 0]),
        ("mean", lambda output: output.last_hidden_state[0].mean(axis=0)),
        ("max", lambda output: output.last_hidden_state[0].max(axis=0)),
        ("pooler", lambda output: output.pooler_output[0]),
    ],
)
@pytest.mark.slow
def test_every_pooling(model, pooling, reference):
    expected = np.stack([reference(alone(model, text)) for text in TEXTS])
    assert_close(model.embed(TEXTS, pooling), expected)
    unit = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    assert_close(model.embed(TEXTS, pooling, normalize=True), unit)


def test_a_vector_does_not_depend_on_the_other_texts(model, capsys):
    together = model.embed(TEXTS * 4, batch_size=8)
    assert (together.shape, together.dtype) == ((24, 16), np.float32)
    assert_close(together, np.tile(model.embed(TEXTS), (4, 1)))
    capsys.readouterr()
    for progress in (False, True):
        model.embed(TEXTS, "mean", progress=progress)
        assert ("6/6" in capsys.readouterr().err) == progress


def test_no_texts_and_one_string_or_dict_instead_of_a_list(model):
    assert model.embed([]).shape == (0, 16)
    assert model.hidden_states([]) == model.attentions([]) == []
    for method in (model.embed, model.hidden_states, model.attentions):
        with pytest.raises(UserError, match="the texts are one string, .*; give a list of strings"):
            method("the sun")
        with pytest.raises(UserError, match="the texts are one dict, {'text': 'the sun'}; give a"):
            method({"text": "the sun"})


def test_a_cut_text_is_its_beginning(model, capsys):
    def first(*texts, **options):
        return model.embed([*texts, *TEXTS], "mean", **options)[0]

    assert_close(first("sun " * 90), first("sun " * 30))
    empty = "1 of 7 texts were empty\n"
    assert capsys.readouterr().err == f"1 of 7 texts were longer than 32 tokens: cut\n{empty * 2}"
    assert_close(first("sun " * 20, max_length=16), first("sun " * 14))
    assert capsys.readouterr().err == f"2 of 7 texts were longer than 16 tokens: cut\n{empty * 2}"


def test_half_precision_gives_float32(model):
    half = dataclasses.replace(
        model, module=model.module.clone(execution=Execution(dtype="bfloat16"))
    )
    vectors = half.embed(TEXTS)
    assert vectors.dtype == np.float32
    difference = np.abs(vectors - model.embed(TEXTS)).max()
    assert 1e-6 < difference < 0.1


def test_changes_of_a_text_before_it_is_tokenised(tokenizer):
    prepare = TextPreparation(TextVectors(lower_case=True), "The Sea : ", tokenizer)
    assert prepare("A [MASK] ΣΑΣ") == "the sea : a [MASK] σασ"  # each character alone: no final ς
    assert prepare(("A", "B")) == ("the sea : a", "b")
    assert prepare.prompt_length(32) == 0
    apart = dataclasses.replace(prepare, vectors=TextVectors(include_prompt=False))
    assert apart("A [MASK]") == "The Sea : A [MASK]"
    assert apart.prompt_length(32) == len(tokenizer.encode_batch(["the sea :"])[0]) - 1 == 4


def test_refused_poolings(model, make_model):
    with pytest.raises(UserError, match="pooling is 'middle'; known are cls, max, .*, pooler"):
        model.embed(["sun"], "middle")
    for without in (
        make_model("masked_lm"),
        make_model("encoder", add_pooling_layer=False),
    ):
        assert without.embed(TEXTS, "cls").shape == (6, 16)
        with pytest.raises(UserError, match="has no pooler: choose cls, mean or max"):
            without.embed(["sun"], "pooler")


EVERY_LAYER = (0, 1, 2)


@pytest.mark.slow
@pytest.mark.parametrize("head", ["pretraining", "encoder"])
def test_hidden_states_of_all_layers(make_model, head):
    model = make_model(head)
    for record, text in zip(model.hidden_states(TEXTS, EVERY_LAYER), TEXTS, strict=True):
        expected = alone(model, text).hidden_states[:, 0]
        assert record.states.shape == (3, len(record.tokens), 16)
        assert record.states.dtype == np.float32
        assert record.states.base is None  # else the whole batch would stay in memory
        assert_close(record.states, expected)


def test_layer_zero_is_the_embeddings(model):
    (record, *_) = model.hidden_states(["the sun", *TEXTS], EVERY_LAYER)
    table = jax.tree.map(np.asarray, model.params["bert"]["embeddings"])
    ids = np.array([2, 6, 17, 3])
    total = (
        table["word_embeddings"]["embedding"][ids]
        + table["position_embeddings"]["embedding"][:4]
        + table["token_type_embeddings"]["embedding"][0]
    )
    total = np.asarray(total, np.float64)
    centred = total - total.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(
        record.states[0], centred / np.sqrt((centred**2).mean(axis=1, keepdims=True)), atol=1e-5
    )


def test_tokens_and_offsets(model):
    text, pair, *_ = model.hidden_states(["the dogs", ("a", "sea"), *TEXTS], EVERY_LAYER)
    assert text.tokens == ["[CLS]", "the", "dog", "##s", "[SEP]"]
    assert text.offsets == [(0, 0), (0, 3), (4, 7), (7, 8), (0, 0)]
    assert pair.tokens == ["[CLS]", "a", "[SEP]", "sea", "[SEP]"]
    assert pair.offsets == [(0, 0), (0, 1), (0, 0), (0, 3), (0, 0)]


@pytest.mark.slow
def test_layers_are_counted_from_either_end(model):
    def states(*layers):
        return model.hidden_states(TEXTS, layers)[0].states

    every = states(*EVERY_LAYER)
    np.testing.assert_array_equal(states(-3, -2, -1), every)
    np.testing.assert_array_equal(states(2, 0, 2), every[[2, 0, 2]])
    (last,) = model.hidden_states(TEXTS)[0].states
    assert last.shape == every.shape[1:]
    assert_close(last, every[2])


@pytest.mark.parametrize(
    ("combine", "layers", "by_hand"),
    [
        ("sum", (-1, -1), lambda last, same: last + same),
        ("mean", (2, 0), lambda last, embeddings: (last + embeddings) / 2),
        ("concatenate", (2, 0), lambda *both: np.concatenate(both, axis=-1)),
    ],
)
def test_layers_combined(model, combine, layers, by_hand):
    combined = model.hidden_states(TEXTS, layers, combine)
    for record, apart in zip(combined, model.hidden_states(TEXTS, EVERY_LAYER), strict=True):
        assert_close(record.states, by_hand(*(apart.states[layer] for layer in layers)))


@pytest.mark.slow
def test_attention_of_all_layers(model):
    maps = model.attentions(TEXTS)
    for record, text in zip(maps, TEXTS, strict=True):
        tokens = len(record.tokens)
        assert record.weights.shape == (2, 2, tokens, tokens)
        assert record.weights.dtype == np.float32
        assert record.weights.base is None
        np.testing.assert_allclose(record.weights.sum(axis=-1), 1, atol=1e-6)
        assert_close(record.weights, alone(model, text).attentions[:, 0])
    for layers in ((2,), (-1,)):
        np.testing.assert_array_equal(
            model.attentions(TEXTS, layers)[0].weights[0], maps[0].weights[1]
        )


def test_refused_layers_and_combinations(model):
    for layer in (3, -4):
        with pytest.raises(UserError, match=f"layer {layer} does not exist; this model has 0 to 2"):
            model.hidden_states(["sun"], (layer,))
    for layer in (0, 3, -3):
        with pytest.raises(UserError, match=f"layer {layer} does not exist; this model has 1 to 2"):
            model.attentions(["sun"], (layer,))
    with pytest.raises(UserError, match=r"layers is \(\); give numbers from 0 to 2"):
        model.hidden_states(["sun"], ())
    with pytest.raises(UserError, match="combine is 'product'; known are sum, mean, conca"):
        model.hidden_states(["sun"], (1, 2), "product")
