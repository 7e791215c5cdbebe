"""The memory of a step as far as shapes tell."""

from types import SimpleNamespace

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models.config import EncoderConfig
from bert_jax.planning.memory import Activations, Memory, trace_activations
from bert_jax.planning.training_on_mesh import read_out_of_memory
from bert_jax.sharding.mesh import MeshShape, make_mesh
from bert_jax.tasks.base.task import FrozenInputs
from bert_jax.training.optimizer import make_optimizer
from bert_jax.training_options import OptimizerOptions

GIB = 2**30

# The tiny model's parameters, counted by hand: V 96, D 32, F 64, T 24, L 2.
EMBEDDINGS = (96 + 24 + 2) * 32 + 2 * 32
LAYER = 4 * (32 * 32 + 32) + 2 * 2 * 32 + 32 * 64 + 64 + 64 * 32 + 32
HEADS = (32 * 32 + 32) + (32 * 32 + 32) + 2 * 32 + 96 + 32 * 2 + 2
PARAMETERS = EMBEDDINGS + 2 * LAYER + HEADS


@pytest.mark.slow
def test_the_state_by_hand(lay_out):
    memory = lay_out("h100:1", MeshShape()).estimate
    assert memory.parameters == 4 * PARAMETERS
    assert memory.optimizer == 2 * 4 * PARAMETERS
    assert memory.temporaries == 4 * PARAMETERS  # the gradients
    assert memory.peak == 4 * 4 * PARAMETERS + memory.activations
    corrected = lay_out("h100:1", MeshShape(), optimizer__bias_correction=True).estimate
    assert corrected.optimizer == memory.optimizer + 4  # its step


def test_each_axis_of_the_mesh_saves_what_it_splits(lay_out):
    whole = lay_out("h100:8", MeshShape(data=8)).estimate
    fsdp = lay_out("h100:8", MeshShape(data=1, fsdp=8)).estimate
    tensor = lay_out("h100:8", MeshShape(data=2, tensor=4)).estimate
    assert whole.parameters == 4 * PARAMETERS
    # All but vectors is split eight times.
    assert whole.parameters / 8 < fsdp.parameters < whole.parameters / 5
    assert fsdp.optimizer == 2 * fsdp.parameters
    assert fsdp.activations == whole.activations
    assert whole.parameters / 4 < tensor.parameters < whole.parameters / 2
    # Four times the rows, of which a part is split four times.
    assert whole.activations < tensor.activations < 4 * whole.activations


@pytest.mark.slow
@pytest.mark.usefixtures("optimized")
def test_activations_follow_rows_dtype_and_remat(lay_out):
    def memory_of(**keys: object) -> Memory:
        return lay_out("h100:1", MeshShape(), model__hidden_dropout_prob=0.1, **keys).estimate

    plain = memory_of()
    twice = memory_of(train__global_batch_size=16)
    parts = memory_of(train__microbatches=4)
    per_row = (twice.activations - plain.activations) // 8
    assert plain.activations - parts.activations == 6 * per_row
    # The keys of the dropout are kept once, whatever the number of rows.
    assert 0 < plain.activations - 8 * per_row < 1000
    assert parts.temporaries == 2 * plain.temporaries  # the sum of the gradients, and one of them
    assert memory_of(precision="bfloat16").activations < plain.activations
    dots, full = memory_of(model__remat="dots"), memory_of(model__remat="full")
    assert full.activations < dots.activations < plain.activations
    assert full.parameters == dots.parameters == plain.parameters


@pytest.mark.slow
@pytest.mark.usefixtures("optimized")
def test_the_estimate_for_a_real_size(lay_out):
    """BERT-base on a v5e, 32 rows of 128: the TPU compiler says 4.08 GiB (libtpu 0.0.42.1)."""
    base = {
        "model__hidden_size": 768,
        "model__num_hidden_layers": 12,
        "model__num_attention_heads": 12,
        "model__intermediate_size": 3072,
        "model__max_position_embeddings": 512,
        "model__vocab_size": 30522,
        "data__length": 128,
        "data__max_predictions": 20,
        "train__global_batch_size": 256,
        "precision": "bfloat16",
    }
    assert lay_out("h100:8", MeshShape(), **base).estimate.peak / 2**30 == pytest.approx(4.08, 0.05)


class Pair(nn.Module):
    """A map from 16 to 32 numbers."""

    config: EncoderConfig = EncoderConfig()

    @nn.compact
    def __call__(self, inputs):
        return nn.Dense(32, use_bias=False, name="classifier")(jnp.zeros((1, 16)))


class FixedMap(FrozenInputs):
    """A teacher with seven outputs for each vector."""

    def abstract_params(self, mesh):
        return {"kernel": jax.ShapeDtypeStruct((16, 7), np.float32)}

    def outputs(self, params, batch):
        return {"teacher": batch["inputs"] @ params["kernel"]}  # [B, 2, 7]


class PairTask:
    """Compares the two vectors of each row, or the first vectors of all rows with the second."""

    description = SimpleNamespace(
        config=EncoderConfig(hidden_size=16, intermediate_size=64, num_attention_heads=2)
    )

    module = Pair()

    def __init__(self, compares_all_rows: bool, has_teacher: bool) -> None:
        self._compares_all_rows = compares_all_rows
        self.frozen_inputs = FixedMap() if has_teacher else FrozenInputs()

    def batch_shapes(self):
        return {"inputs": jax.ShapeDtypeStruct((10, 2, 16), np.float32)}

    def loss_sums(self, params, batch, dropout_key):
        vectors = jnp.tanh(
            batch["inputs"].reshape(-1, 16) @ params["classifier"]["kernel"]
        )  # [2 B, 32]
        first, second = vectors.reshape(-1, 2, 32).swapaxes(0, 1)
        scores = first @ second.T if self._compares_all_rows else (first * second).sum(axis=-1)
        return {"": {"loss": jnp.exp(scores).sum()}}

    def loss_weights(self, batch):
        return {"": jnp.float32(1)}

    def total_loss(self, losses):
        return losses[""]


def test_the_activations_of_pairs_by_hand():
    optimizer = make_optimizer(OptimizerOptions(), 10)
    one_row, all_rows, taught = (
        trace_activations(PairTask(*arguments), optimizer)
        for arguments in ((False, False), (True, False), (False, True))
    )
    # The inputs [2, 16] and at least once each of tanh [2, 32], and both vectors [32].
    assert one_row.per_row >= 4 * (2 * 16 + 2 * 32 + 2 * 32)
    assert one_row.per_row <= 4 * (2 * 16 + 2 * 2 * 32 + 2 * 32 + 2)
    assert one_row.per_two_rows == 0
    assert all_rows.per_two_rows == 4  # exp of the scores [B, B]
    assert abs(all_rows.per_row - one_row.per_row) <= 8
    assert taught.per_row - one_row.per_row == 4 * 2 * 7
    mesh = make_mesh(MeshShape(data=2), jax.devices()[:1] * 2)
    fixed = all_rows.bytes(0, mesh)
    assert all_rows.bytes(5, mesh) - fixed == 5 * all_rows.per_row + 5 * 10 * 4
    # Of three micro-batches the rows of each are compared with all.
    assert all_rows.bytes(5, mesh, 3) - fixed == 5 * all_rows.per_row + 15 * 30 * 4


def test_what_the_tensor_axis_splits():
    activations = Activations(per_row=100, per_row_split=80, fixed=40, parameters=0)
    mesh = make_mesh(MeshShape(data=1, tensor=4), jax.devices()[:1] * 4)
    assert activations.bytes(3, mesh) == 3 * (20 + 80 // 4) + 40 // 4
    assert Memory(1, 2, 3, 4).peak == 10


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            "RESOURCE_EXHAUSTED: Ran out of memory on HBM, the total memory required for HLO "
            "temporaries (17.50G) exceeds available HBM (15.75G).",
            (19 * GIB + GIB // 2, 15.75 * GIB),  # the state comes on top
        ),
        (
            "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory "
            "space hbm. Used 26.50G of 15.75G hbm. Exceeded hbm capacity by 10.75G.",
            (26.5 * GIB, 15.75 * GIB),
        ),
        ("RESOURCE_EXHAUSTED: no room", (None, None)),
        ("INVALID_ARGUMENT: Used 3G of 2G hbm", None),
    ],
)
def test_messages_of_the_compiler(message, expected):
    assert read_out_of_memory(message, 2 * GIB) == expected


@pytest.mark.slow
def test_the_step_of_a_training_compiled_here(lay_out):
    step = lay_out("cpu:1", MeshShape(), model__num_hidden_layers=1)
    compiled = step.compile(8)
    assert compiled.collectives == []  # there is one device
    memory = compiled.memory
    assert memory.parameters == step.estimate.parameters
    assert memory.optimizer == step.estimate.optimizer == 2 * memory.parameters
    assert compiled.needed_bytes == memory.peak
    # The new state replaces the old state in memory: gradients, batch and buffers remain.
    assert memory.activations == step.estimate.activations
    assert 0 < memory.temporaries < 2 * memory.parameters
