"""The number of parameters and their initial values."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from bert_jax.families import bert
from bert_jax.models.config import EncoderConfig
from bert_jax.models.encoder import Encoder, abstract_params
from bert_jax.models.execution import Execution
from bert_jax.models.head import all_heads, head_parameters
from bert_jax.models.heads.pretraining import PreTrainingModel


def shapes_of(module) -> dict[str, tuple[int, ...]]:
    shapes = flatten_dict(abstract_params(module), sep="/")
    return {name: leaf.shape for name, leaf in shapes.items()}


def count(shapes) -> int:
    return sum(int(np.prod(shape)) for shape in shapes.values())


def test_bert_base_has_the_known_number_of_parameters():
    # Tables 23,837,184 + LayerNorm 1,536; twelve layers of 7,087,872; pooler 590,592:
    # 109,482,240, the number that Hugging Face gives for bert-base-uncased.
    embeddings = (30522 + 512 + 2) * 768 + 2 * 768
    layer = 4 * (768 * 768 + 768) + 2 * 768 + (768 * 3072 + 3072) + (3072 * 768 + 768) + 2 * 768
    pooler = 768 * 768 + 768
    assert embeddings + 12 * layer + pooler == 109_482_240
    assert count(shapes_of(Encoder(EncoderConfig()))) == 109_482_240
    # The decoder is the word table: its heads add a dense layer, a LayerNorm and two biases.
    mlm_head = 768 * 768 + 768 + 2 * 768 + 30522
    nsp_head = 2 * 768 + 2
    assert 109_482_240 + mlm_head + nsp_head == 110_106_428
    assert count(shapes_of(PreTrainingModel(EncoderConfig()))) == 110_106_428


@pytest.mark.parametrize(
    ("size", "millions"),
    # google-research/bert, README, "24 smaller models"; the paper gives 340 M for large.
    [("tiny", 4.4), ("mini", 11.2), ("small", 28.8), ("medium", 41.4), ("large", 335.1)],
)
def test_the_published_numbers_of_the_other_sizes(size, millions):
    assert count(shapes_of(Encoder(bert.FAMILY.new_config(size)))) / 1e6 == pytest.approx(
        millions, abs=0.06
    )


def test_parameters_do_not_depend_on_the_execution():
    config = bert.FAMILY.new_config("tiny")
    plain = shapes_of(PreTrainingModel(config))
    assert plain["bert/encoder/layers/attention/query/kernel"] == (2, 128, 2, 64)
    for execution in (
        Execution(scan_layers=False),
        Execution(dtype="bfloat16", remat="full"),
    ):
        assert shapes_of(PreTrainingModel(config, execution)) == plain


@pytest.fixture(scope="module")
def initial():
    config = bert.FAMILY.new_config("tiny", vocab_size=2000)
    ids = jnp.zeros((1, 8), jnp.int32)
    params = jax.jit(PreTrainingModel(config).init)(jax.random.key(0), ids)["params"]
    return flatten_dict(jax.tree.map(np.asarray, params), sep="/")


def test_initial_values(initial):
    """Weights of a truncated normal, different in each layer; biases 0 and scales 1."""
    weights = 0
    for name, value in initial.items():
        assert value.dtype == np.float32
        if name.endswith("bias"):
            assert not value.any(), name
        elif name.endswith("scale"):
            assert (value == 1).all(), name
        else:
            weights += 1
            # Cut at two deviations, not corrected: the deviation is 0.8796 of 0.02.
            expected, error = 0.8796 * 0.02, 4 / np.sqrt(2 * value.size)
            assert float(value.std()) == pytest.approx(expected, rel=max(0.01, error)), name
            assert float(value.mean()) == pytest.approx(0, abs=4 * expected / np.sqrt(value.size))
            assert 0.035 < float(np.abs(value).max()) <= 0.04, name
            if "/layers/" in name:
                assert (value[0] != value[1]).mean() > 0.99, name
    assert weights == 3 + 6 + 3
    assert not np.allclose(
        initial["bert/encoder/layers/attention/query/kernel"],
        initial["bert/encoder/layers/attention/key/kernel"],
    )


def test_names_of_parameters_of_heads_begin_with_a_scope():
    """Else the empty scope, which every name begins with, makes all parameters those of a head."""
    patterns = [pattern for head in all_heads().values() for pattern, _ in head.axes]
    assert [pattern for pattern in patterns if not re.match("[a-z]", pattern)] == []
    assert not re.match(head_parameters(), "bert/encoder/layers/output/kernel")
