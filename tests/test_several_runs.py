"""Runs with several seeds and over a grid, on sentences about cats and about dogs."""

import json
import shutil
from pathlib import Path

import pytest

from bert_jax import configuration, several_runs
from bert_jax.errors import UserError
from bert_jax.run_directory import run_config

ANIMALS = ("cat", "dog")
VERBS = ("sat", "ran", "sang", "went", "play", "walk")
PLACES = ("on the mat", "to the sea", "up the tree", "down", "to a boy")


@pytest.fixture(scope="module")
def table(tmp_path_factory) -> Path:
    """Sixty sentences; the label is the animal."""
    path = tmp_path_factory.mktemp("data") / "animals.tsv"
    lines = [
        f"the {animal} {verb} {place} .\t{animal}"
        for verb in VERBS
        for place in PLACES
        for animal in ANIMALS
    ]
    path.write_text("\n".join(["text\tlabel", *lines]) + "\n")
    return path


@pytest.fixture(scope="module")
def make_config(table, tmp_path_factory, pieces):
    """A classifier of one layer of width 16, from nothing."""
    vocabulary = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    vocabulary.write_text("\n".join(pieces) + "\n")
    keys = {
        "task": "classification",
        "tokenizer.path": str(vocabulary),
        "model.hidden_size": 16,
        "model.num_hidden_layers": 1,
        "model.num_attention_heads": 2,
        "model.intermediate_size": 16,
        "model.max_position_embeddings": 16,
        "data.train": str(table),
        "data.development": str(table),
        "data.length": 16,
        "optimizer.learning_rate": 1e-2,
        "train.epochs": 2.0,
        "train.global_batch_size": 8,
    }

    def make(**changes):
        config = configuration.defaults("classification")
        for key, value in (keys | {k.replace("__", "."): v for k, v in changes.items()}).items():
            configuration.set_key(config, key, value, where="test")
        return config

    return make
