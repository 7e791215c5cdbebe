"""A plan of a distillation counts the teacher: its parameters, and its outputs beside a step."""

from pathlib import Path

import pytest

from bert_jax.config import load_config
from bert_jax.experiment import Experiment
from bert_jax.planning.hardware import parse_slice
from bert_jax.planning.plan import PlanOptions

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("optimized")]

CONFIG = Path(__file__).parents[2] / "configs" / "distill.py"
VOCABULARY = 40


@pytest.fixture(scope="module")
def memory_on(make_model, tmp_path_factory):
    """Plans a student of one layer of a teacher of eight, whose weights are compared."""
    teacher = tmp_path_factory.mktemp("teacher")
    shape = {"num_hidden_layers": 8, "num_attention_heads": 8, "max_position_embeddings": 64}
    model = make_model("masked_lm", **shape)
    assert model.config.vocab_size == VOCABULARY
    model.save(teacher)
    keys = {
        "data.length": "64",
        "data.max_predictions": "4",
        "train.steps": "2",
        "train.global_batch_size": "64",
        "precision": "float32",
        "model.pad_vocab_to_multiple_of": "8",
        "distillation.attention_weight": "1",
        "distillation.value_relation_weight": "1",
        "distillation.layer_map": "8",
    }
    config = load_config(f"{CONFIG}:task=pretraining,teacher={teacher},layers=1", [*keys.items()])
    experiment = Experiment.from_config(config)

    def plan(topology: str) -> dict:
        (result,) = experiment.plan(parse_slice(topology), PlanOptions(search=False))
        return result

    return plan


def parameters(layers: int) -> int:
    """Parameters of a masked language model: D 16, F 32, 64 positions, 2 token types."""
    layer = 4 * (16 * 16 + 16) + 4 * 16 + 16 * 32 + 32 + 32 * 16 + 16
    return (VOCABULARY + 64 + 2 + 2) * 16 + layers * layer + 16 * 16 + 3 * 16 + VOCABULARY


def test_parameters_of_both_and_moments_of_one(memory_on):
    memory = memory_on("h100:1")["memory_per_device"]
    assert memory["parameters"] == 4 * (parameters(1) + parameters(8))
    assert memory["optimizer"] == 2 * 4 * parameters(1) + 4  # bias correction has a counter


def test_the_estimate_is_near_what_the_compiler_needs(memory_on):
    estimated, compiled = memory_on("h100:1"), memory_on("cpu:1")
    assert not estimated["compiled"]
    assert compiled["compiled"]
    ratio = estimated["peak_bytes_per_device"] / compiled["peak_bytes_per_device"]
    assert 0.7 < ratio < 1.4  # as for other trainings, tests/planning/test_tpu.py
    # Attention weights and value relations of the layer that is compared, [B, N, T, T] each, not of
    # all eight.
    of_layer = 2 * 64 * 8 * 64 * 64 * 4
    assert of_layer < estimated["memory_per_device"]["activations"] < 8 * of_layer
