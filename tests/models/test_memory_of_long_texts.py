"""The memory of a text of 8,192 tokens, with the heads that read it as one row."""

import jax
import jax.numpy as jnp
import pytest

from bert_jax.families.family import find_family
from bert_jax.models.encoder import abstract_params
from bert_jax.models.head import find_head

LENGTH = 8192


@pytest.mark.slow
@pytest.mark.parametrize("head", ["classification", "tagging", "question_answering"])
def test_activations_take_less_than_the_scores_of_one_head(head):
    fields = {"max_position_embeddings": LENGTH, "vocab_size": 100, "pad_token_id": 0}
    config = find_family("modernbert").new_config("tiny", **fields)
    assert config.windows == (None, 64, 64, None)
    module = find_head(head).make(config)
    ids = jax.ShapeDtypeStruct((1, LENGTH), jnp.int32)
    compiled = (
        jax.jit(lambda params, ids: module.apply({"params": params}, ids))
        .lower(abstract_params(module), ids)
        .compile()
    )
    assert compiled.memory_analysis().temp_size_in_bytes < 4 * LENGTH**2
