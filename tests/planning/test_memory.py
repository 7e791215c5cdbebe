"""The memory of a step as far as shapes tell."""

import jax
import pytest

from bert_jax.planning.memory import Activations, Memory
from bert_jax.sharding.mesh import MeshShape, make_mesh

# The tiny model's parameters, counted by hand: V 96, D 32, F 64, T 24, L 2.
EMBEDDINGS = (96 + 24 + 2) * 32 + 2 * 32
LAYER = 4 * (32 * 32 + 32) + 2 * 2 * 32 + 32 * 64 + 64 + 64 * 32 + 32
HEADS = (32 * 32 + 32) + (32 * 32 + 32) + 2 * 32 + 96 + 32 * 2 + 2
PARAMETERS = EMBEDDINGS + 2 * LAYER + HEADS


def test_the_state_by_hand(lay_out):
    memory = lay_out("h100:1", MeshShape()).estimate
    assert memory.parameters == 4 * PARAMETERS
    assert memory.optimizer == 2 * 4 * PARAMETERS
    assert memory.temporaries == 4 * PARAMETERS  # the gradients
    assert memory.peak == 4 * 4 * PARAMETERS + memory.activations


def test_bias_correction_counts_its_step(lay_out):
    plain, corrected = (
        lay_out("h100:1", MeshShape(), **keys).estimate.optimizer
        for keys in ({}, {"optimizer__bias_correction": True})
    )
    assert corrected == plain + 4


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


def test_activations_follow_rows_dtype_and_remat(lay_out):
    def of(**keys: object) -> Memory:
        return lay_out("h100:1", MeshShape(), model__hidden_dropout_prob=0.1, **keys).estimate

    plain = of()
    twice = of(train__global_batch_size=16)
    parts = of(train__microbatches=4)
    per_row = (twice.activations - plain.activations) // 8
    assert plain.activations - parts.activations == 6 * per_row
    # The keys of the dropout are kept once, whatever the number of rows.
    assert 0 < plain.activations - 8 * per_row < 1000
    assert parts.temporaries == 2 * plain.temporaries  # the sum of the gradients, and one of them
    assert of(precision="bfloat16").activations < plain.activations
    dots, full = of(model__remat="dots"), of(model__remat="full")
    assert full.activations < dots.activations < plain.activations
    assert full.parameters == dots.parameters == plain.parameters


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


def test_what_the_tensor_axis_splits():
    activations = Activations(per_row=100, per_row_split=80, fixed=40, parameters=0)
    mesh = make_mesh(MeshShape(data=1, tensor=4), jax.devices()[:1] * 4)
    assert activations.bytes(3, mesh) == 3 * (20 + 80 // 4) + 40 // 4
    assert Memory(1, 2, 3, 4).peak == 10
