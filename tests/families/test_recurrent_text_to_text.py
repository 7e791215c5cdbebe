"""Encoder and decoder of an LSTM or GRU as a model directory: files, texts, what starts from it."""

import json

import jax
import numpy as np
import pytest

import bert_jax
from bert_jax.checkpoints import model_directory
from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.errors import OptionError
from bert_jax.families.family import find_family
from bert_jax.models.execution import Execution
from tests.random_params import random_params

TEXTS = ["the cat sat on a mat", "a dog"]
FIELDS = {
    "lstm": {"decoder_attention": "additive", "reverse_input": True},
    "gru": {"bidirectional": True, "embedding_size": 6, "tie_word_embeddings": False},
}


@pytest.fixture
def directory_of(tmp_path, tokenizer):
    """The directory of a random model of a family."""

    def make(kind):
        family = find_family(kind)
        sizes = {"vocab_size": tokenizer.vocab_size, "hidden_size": 8, "num_hidden_layers": 2}
        config = family.new_config("tiny", **sizes, **FIELDS[kind])
        other = {"eos_token_id": tokenizer.special_ids.eos}
        description = ModelDescription(config, "text_to_text", family=family, other=other)
        params = random_params(description.make_module(Execution()), scale=0.5, all_differ=True)
        model_directory.save(tmp_path / kind, description, params, tokenizer)
        return tmp_path / kind

    return make


@pytest.mark.parametrize("kind", ["lstm", pytest.param("gru", marks=pytest.mark.slow)])
def test_a_directory_is_saved_as_it_was_loaded_and_writes(kind, directory_of, tmp_path):
    """Greedy search takes the most probable token after the whole pass over those before."""
    source = directory_of(kind)
    model = bert_jax.load(source)
    model.save(tmp_path / "again")
    for name in ("model.safetensors", "config.json"):
        assert (tmp_path / "again" / name).read_bytes() == (source / name).read_bytes(), name
    written = json.loads((source / "config.json").read_text())
    assert {key: written[key] for key in FIELDS[kind]} == FIELDS[kind]
    generations = model.generate(TEXTS, max_new_tokens=4)
    for text, (best,) in zip(TEXTS, generations, strict=True):
        (encoding,) = model.tokenizer.encode_batch([text])
        before = np.int32([[model.config.pad_token_id, *best.token_ids[:-1]]])
        logits = model.module.apply(
            {"params": model.params}, np.int32([encoding.ids]), decoder_input_ids=before
        )
        assert logits[0].argmax(axis=-1).tolist() == best.token_ids


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_beams_do_not_depend_on_the_batch(kind, directory_of):
    model = bert_jax.load(directory_of(kind))
    options = {"max_new_tokens": 5, "num_beams": 3, "num_return_sequences": 2}
    together = model.generate(TEXTS, **options)
    for text, expected in zip(TEXTS, together, strict=True):
        (alone,) = model.generate([text], batch_size=1, **options)
        assert [each.text for each in alone] == [each.text for each in expected]
        scores = [[each.score for each in texts] for texts in (alone, expected)]
        np.testing.assert_allclose(*scores, atol=1e-5)
        assert scores[1][0] >= scores[1][1]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_a_classifier_starts_from_the_encoder_of_an_autoencoder(kind, directory_of):
    """Dai and Le, 2015: the embeddings and the layers, which read the text as before."""
    source = bert_jax.load(directory_of(kind))
    model = bert_jax.load(directory_of(kind), task="classification")
    expected, found = source.params["bert"], model.params["bert"]
    assert set(expected) <= set(found)
    for scope in expected:
        jax.tree.map(np.testing.assert_array_equal, found[scope], expected[scope])
    assert model.config.reverse_input == source.config.reverse_input
    assert "decoder" not in model.params
    # A reversed text is read to its end at the first token.
    assert model.config.classifier_pooling == ("cls" if kind == "lstm" else "mean")
    assert len(model.classify(TEXTS)) == 2


def test_two_ways_to_reverse_are_refused():
    message = "model.reverse_input is True; model.bidirectional is True, which reads both ways"
    with pytest.raises(OptionError, match=message):
        find_family("lstm").new_config("tiny", reverse_input=True, bidirectional=True)
    with pytest.raises(OptionError, match="model.decoder_attention is 'cosine'; known are none,"):
        find_family("lstm").new_config("tiny", decoder_attention="cosine")
