"""A model directory that is written to a bucket, and read from it."""

import jax
import numpy as np
import pytest

import bert_jax
from bert_jax.checkpoints import model_directory
from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.errors import UserError
from bert_jax.files import as_path, write_atomically
from bert_jax.models.config import Head
from bert_jax.models.encoder import abstract_params
from bert_jax.models.execution import Execution


def save(directory, config, tokenizer, seed):
    description = ModelDescription(config, Head.MASKED_LM)
    draw = np.random.default_rng(seed)
    abstract = abstract_params(description.make_module(Execution()))
    params = jax.tree.map(lambda leaf: draw.normal(size=leaf.shape).astype("f4"), abstract)
    model_directory.save(directory, description, params, tokenizer)
    return params


def test_a_model_goes_there_and_back(bucket, tiny_config, tokenizer):
    directory = as_path(f"{bucket}/model")
    save(directory, tiny_config, tokenizer, 0)
    write_atomically(directory / "README.md", b"card")
    params = save(directory, tiny_config, tokenizer, 1)

    names = {path.name for path in directory.iterdir()}
    assert {"config.json", "model.safetensors", "vocab.txt", "README.md"} <= names
    loaded = bert_jax.load(str(directory))
    for ours, theirs in zip(jax.tree.leaves(params), jax.tree.leaves(loaded.params), strict=True):
        np.testing.assert_array_equal(ours, theirs)

    loaded.save(f"{bucket}/copy")
    first, second = (
        (as_path(f"{bucket}/{name}") / "model.safetensors").read_bytes()
        for name in ("model", "copy")
    )
    assert first == second


def test_the_weights_of_others_are_not_removed(bucket, tiny_config, tokenizer):
    directory = as_path(f"{bucket}/model")
    save(directory, tiny_config, tokenizer, 0)
    write_atomically(directory / "pytorch_model.bin", b"of somebody else")
    with pytest.raises(UserError, match="pytorch_model.bin was not written by bert_jax"):
        save(directory, tiny_config, tokenizer, 1)
    assert (directory / "pytorch_model.bin").read_bytes() == b"of somebody else"
