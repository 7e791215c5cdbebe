"""The attention of a decoder to a text: what is predicted, the page, and what is refused."""

import json
import re

import numpy as np
import pytest

import bert_jax
from bert_jax import cli
from bert_jax.checkpoints import model_directory
from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.errors import UserError
from bert_jax.families.family import find_family
from bert_jax.models.encoder import RequestedOutputs
from bert_jax.models.execution import Execution
from bert_jax.tasks.alignments import AlignmentPredictor
from bert_jax.tasks.base.generation_options import GenerationOptions
from bert_jax.tasks.generate import GeneratePredictOptions
from tests.random_params import random_params

TEXTS = ["the cat sat", "a dog"]
FIELDS = {
    "lstm": {"decoder_attention": "general", "reverse_input": True},
    "marian": {
        "num_attention_heads": 2,
        "intermediate_size": 24,
        "decoder_layers": 2,
        "decoder_attention_heads": 2,
        "decoder_ffn_dim": 24,
        "decoder_start_token_id": 0,
    },
}


@pytest.fixture
def directory_of(tmp_path, tokenizer):
    """The directory of a random model with encoder and decoder."""

    def make(name, **fields):
        family = find_family(name)
        sizes = {"hidden_size": 16, "num_hidden_layers": 1, "vocab_size": tokenizer.vocab_size}
        config = family.new_config("tiny", **sizes, **fields)
        other = {"eos_token_id": tokenizer.special_ids.eos}
        description = ModelDescription(config, "text_to_text", family=family, other=other)
        params = random_params(description.make_module(Execution()), scale=0.5)
        model_directory.save(tmp_path / name, description, params, tokenizer)
        return tmp_path / name

    return make


@pytest.mark.parametrize("name", ["lstm", pytest.param("marian", marks=pytest.mark.slow)])
def test_the_weights_are_those_with_which_each_token_is_written(directory_of, name):
    """Of the generation of `generate`, with the tokens before each as the decoder's input."""
    model = bert_jax.load(directory_of(name, **FIELDS[name]))
    options = GenerationOptions(max_new_tokens=4)
    alignments = model.alignments(TEXTS, options=options)
    for text, found, generations in zip(
        TEXTS, alignments, model.generate(TEXTS, options=options), strict=True
    ):
        best = generations[0]
        (encoding,) = model.tokenizer.encode_batch([text])
        assert found.source_tokens == encoding.tokens
        assert found.generation == best.text
        assert found.tokens == [model.tokenizer.id_to_token(each) for each in best.token_ids]
        start = model.config.pad_token_id
        _, _, decoded = model.module.apply(
            {"params": model.params},
            np.int32([encoding.ids]),
            decoder_input_ids=np.int32([[start, *best.token_ids[:-1]]]),
            encoder_outputs=RequestedOutputs(attentions=True),
        )
        np.testing.assert_allclose(found.weights, decoded.cross_attentions[:, 0], atol=1e-5)
        np.testing.assert_allclose(found.weights.sum(axis=-1), 1, atol=1e-5)


def test_lines_and_a_page(directory_of, tmp_path, capsys):
    source = tmp_path / "texts.txt"
    source.write_text("\n".join(TEXTS) + "\n")
    model = directory_of("lstm", **FIELDS["lstm"])
    command = ["predict", "--model", model, "--task", "alignments", "--input", source]
    command = [*map(str, command), "--max-new-tokens", "4", "--output"]
    assert cli.main([*command, str(tmp_path / "out.jsonl")]) == 0
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    row = rows[1]
    shape = (1, 1, len(row["tokens"]), len(row["source_tokens"]))
    assert np.shape(row["cross_attentions"]) == shape
    assert cli.main([*command, str(tmp_path / "out.html")]) == 0
    html = (tmp_path / "out.html").read_text()
    data = [json.loads(each) for each in re.findall(r'data-title="[^"]*">(.*)</script>', html)]
    assert [fields["name"] for (fields,) in data] == ["cross-attention"] * 2
    assert data[1][0]["queries"] == row["tokens"]
    assert data[1][0]["keys"] == row["source_tokens"]


def test_models_without_such_attention_are_refused(directory_of, base_model):
    plain = bert_jax.load(directory_of("lstm"))
    with pytest.raises(UserError, match="model.decoder_attention is 'none'; give a model that"):
        AlignmentPredictor(plain, GeneratePredictOptions())
    with pytest.raises(UserError, match="does not read a text with an encoder while it writes"):
        AlignmentPredictor(bert_jax.load(base_model), GeneratePredictOptions())
