"""Models that were trained to write: transformers reads how they generate from their files."""

import dataclasses
from pathlib import Path

import jax
import numpy as np
import pytest

import bert_jax
from bert_jax.checkpoints import model_directory
from bert_jax.checkpoints.generation_config import generation_defaults
from bert_jax.families.family import find_family
from bert_jax.models.execution import Execution
from bert_jax.tasks.base.generation_description import describe_generating
from bert_jax.tasks.base.generation_options import GenerationOptions
from bert_jax.tasks.base.model_init import ModelInit, ModelOptions
from bert_jax.tokenization.sentencepiece_training import train_marian, train_t5
from bert_jax.tokenization.training import train_gpt2
from tests.random_params import random_params

LINES = ["a cat sat on a mat", "the dog ran to the cat", "two birds flew over the house"] * 4
SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
OF_DECODER = {"decoder_layers": 1, "intermediate_size": 20}
CASES = {
    "t5": ("text_to_text", OF_DECODER | {"attention_head_size": 6}),
    "marian": ("text_to_text", OF_DECODER | dict.fromkeys(["decoder_ffn_dim"], 20)),
    "gpt2": ("causal_lm", {"intermediate_size": 20}),
}


def tokenizer_of(name):
    if name == "gpt2":
        return train_gpt2(LINES, vocab_size=280)
    if name == "marian":
        return train_marian(LINES, vocab_size=28)
    return train_t5(LINES, vocab_size=128)


def model_init(name, **description):
    options = ModelOptions(family=name, size="tiny", fields=SIZES | CASES[name][1])
    return ModelInit(Execution(), find_family(name), options=options, **description)


@pytest.mark.parametrize("name", CASES)
def test_what_a_new_model_says(name):
    """Its own special tokens; none is forced, unlike those of published models."""
    init, tokenizer = model_init(name), tokenizer_of(name)
    described = describe_generating(init, tokenizer, CASES[name][0])
    special, fields = tokenizer.special_ids, described.other
    assert fields["eos_token_id"] == special.eos is not None
    assert fields.get("pad_token_id") == special.pad
    assert ("forced_eos_token_id" in fields) == (name != "gpt2")
    assert fields.get("forced_eos_token_id") is None


def test_fields_of_the_model_that_a_training_starts_from_remain(tmp_path):
    tokenizer, init = tokenizer_of("t5"), model_init("t5")
    first = init.describe(tokenizer, "text_to_text")
    first = dataclasses.replace(first, other={"eos_token_id": 1, "num_beams": 4, "foo": 3})
    model_directory.save(tmp_path, first, random_params(first.make_module(Execution())), tokenizer)
    again = model_init("t5", description=model_directory.load_description(tmp_path))
    described = describe_generating(again, tokenizer, "text_to_text")
    assert described.other["num_beams"] == 4
    assert "foo" not in described.other


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_transformers_generates_the_same_with_the_defaults_of_the_files(name, tmp_path):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    head, _ = CASES[name]
    init, tokenizer = model_init(name), tokenizer_of(name)
    described = describe_generating(init, tokenizer, head)
    described = dataclasses.replace(described, other=described.other | {"max_new_tokens": 12})
    params = random_params(described.make_module(Execution()), seed=2, scale=0.5)
    eos = tokenizer.special_ids.eos

    def often(path, array):
        """The end token is frequent, so that texts end."""
        if path[-1].key == "embedding" and len(array) >= tokenizer.vocab_size:
            array[eos] *= 4
        if path[-1].key == "bias" and array.shape == (described.config.vocab_size,):
            array[eos] += 3  # of Marian's logits
        return array

    params = jax.tree_util.tree_map_with_path(often, params)
    model_directory.save(tmp_path, described, params, tokenizer)
    texts = [" ".join(line.split()[:n]) for line in LINES[:3] for n in range(1, 5)]
    ours = [each.token_ids for (each,) in bert_jax.load(tmp_path).generate(texts)]
    seq2seq, causal = transformers.AutoModelForSeq2SeqLM, transformers.AutoModelForCausalLM
    model = (causal if head == "causal_lm" else seq2seq).from_pretrained(tmp_path).eval()
    assert model.generation_config.eos_token_id == eos
    for text, expected in zip(texts, ours, strict=True):
        ids = torch.tensor([tokenizer.encode_batch([text])[0].ids])
        output = model.generate(ids, attention_mask=torch.ones_like(ids))[0].numpy()
        new = output[ids.shape[1] if head == "causal_lm" else 1 :]
        np.testing.assert_array_equal(new, expected)
    ended = [ids[-1] == eos for ids in ours]
    assert any(ended)
    assert not all(len(ids) == 12 for ids in ours)


SOURCES = [
    {},
    {"wmt_length_penalty": 0.6, "num_beams": 4},
    {"length_penalty": 2.0, "num_beams": 3, "max_length": 20},
    {"do_sample": True, "temperature": 0.6, "top_p": 0.9},
    {"top_k": 5, "temperature": 0.6, "max_new_tokens": 7, "min_length": 4},
]
CHOSEN = [
    {},
    {"penalty": "transformers", "length_penalty": 1.0, "temperature": 0.0},
    {"length_penalty": 0.8},
    {"penalty": "wmt", "num_beams": 2, "temperature": 0.0},
    {"penalty": "wmt", "length_penalty": 0.5, "num_beams": 1, "early_stopping": False},
    {"temperature": 1.0, "num_beams": 1},
    {"temperature": 0.7, "top_k": 5, "top_p": 0.9, "num_beams": 1, "num_return_sequences": 2},
    {"num_beams": 3, "early_stopping": "never", "temperature": 0.0, "penalty": "transformers"},
    {"max_new_tokens": 9, "min_new_tokens": 2, "no_repeat_ngram_size": 3},
]


@pytest.mark.parametrize("chosen", CHOSEN)
@pytest.mark.parametrize("source", SOURCES)
def test_an_exported_model_generates_as_the_evaluated_one(source, chosen):
    """Of transformers' defaults, only the number of tokens and top-k are not ours."""
    options, before = GenerationOptions(**chosen), generation_defaults(Path("before"), source)
    fields = options.fields_with(source)
    exported, plain = generation_defaults(Path("after"), fields), GenerationOptions()
    assert exported.options(1, {}) == options.search(before, 1)
    assert plain.rules(exported) == options.rules(before)
    assert "max_new_tokens" in fields
    assert "top_k" in fields or not fields["do_sample"]
    assert ("wmt_length_penalty" in fields) == (exported.options(1, {}).penalty == "wmt")
    # An evaluation of the exported model, with the options of the training.
    assert options.fields_with(fields) == fields


def test_users_have_precedence_over_an_exported_model():
    exported = GenerationOptions(penalty="wmt", num_beams=2).fields_with({"top_k": 5})
    assert exported["top_k"] == 5
    other = GenerationOptions(penalty="transformers", num_beams=2, temperature=0.0)
    assert other.search(generation_defaults(Path("file"), exported), 1).penalty == "transformers"
