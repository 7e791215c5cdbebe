"""Models that label words by their first pieces."""

import dataclasses

import jax
import numpy as np
import pytest


@pytest.fixture(scope="session")
def label_by_piece(make_model):
    """Makes a model that gives each piece of a mapping its label number, and all others 0."""

    def make(tokenizer, labels, numbers):
        sizes = {"vocab_size": tokenizer.vocab_size, "max_position_embeddings": 32}
        plain = make_model("tagging", num_labels=len(labels), **sizes)
        params = jax.tree_util.tree_map_with_path(
            lambda path, leaf: np.full(leaf.shape, float(path[-1].key == "scale"), np.float32),
            plain.params,
        )
        # With all weights 0, nothing but LayerNorm happens to an embedding. Of 16 numbers, one is
        # 1: normalised it is 15 / √15, and the others are -1 / √15, so 16 / √15 less.
        table = params["bert"]["embeddings"]["word_embeddings"]["embedding"]
        table[:, 0] = 1
        for piece, number in numbers.items():
            table[tokenizer.token_to_id(piece)] = np.eye(16)[number]
        params["classifier"]["kernel"][: len(labels)] = np.eye(len(labels))
        description = dataclasses.replace(plain.description, labels=labels)
        return dataclasses.replace(
            plain, params=params, tokenizer=tokenizer, description=description
        )

    return make
