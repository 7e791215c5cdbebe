"""What the compiler says of a step that is too large."""

import pytest

from bert_jax.planning.memory import device_bytes, measured
from bert_jax.planning.training_on_mesh import CompiledStep, compile_step, read_out_of_memory
from bert_jax.sharding.mesh import MeshShape

_GIB = 2**30


@pytest.mark.parametrize(
    ("message", "found"),
    [
        (
            "RESOURCE_EXHAUSTED: Ran out of memory on HBM, the total memory required for HLO "
            "temporaries (17.50G) exceeds available HBM (15.75G).",
            (19 * _GIB + _GIB // 2, 15.75 * _GIB),  # the state comes on top
        ),
        (
            "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory "
            "space hbm. Used 26.50G of 15.75G hbm. Exceeded hbm capacity by 10.75G.",
            (26.5 * _GIB, 15.75 * _GIB),
        ),
        ("RESOURCE_EXHAUSTED: no room", (None, None)),
        ("INVALID_ARGUMENT: Used 3G of 2G hbm", None),
    ],
)
def test_messages_of_the_compiler(message, found):
    assert read_out_of_memory(message, 2 * _GIB) == found


def test_the_step_of_a_training_compiled_here(lay_out):
    training = lay_out("cpu:1", MeshShape())
    found = compile_step(training.step, training.abstract, training.batch)
    assert isinstance(found, CompiledStep)
    assert found.collectives == []  # there is one device
    memory = measured(found.memory_analysis, training.abstract, training.estimate.activations)
    assert memory.parameters == device_bytes(training.abstract.params)
    assert memory.optimizer == 2 * memory.parameters
    # State and batch go in, the state comes out in its place: what the compiler adds is above.
    arguments = found.memory_analysis.argument_size_in_bytes
    assert memory.peak > arguments > memory.parameters + memory.optimizer
