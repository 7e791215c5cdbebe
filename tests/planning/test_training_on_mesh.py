"""What the compiler says of a step that is too large."""

import jax
import pytest

from bert_jax.planning.memory import device_bytes, measured
from bert_jax.planning.training_on_mesh import CompiledStep, compile_step, read_out_of_memory
from bert_jax.sharding.mesh import MeshShape, make_mesh
from bert_jax.training.optimizer import OptimizerOptions, make_optimizer
from bert_jax.training.step import abstract_state, make_train_step
from tests.training.line_task import LineTask

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


def test_the_step_of_a_training_compiled_here():
    task, mesh = LineTask(), make_mesh(MeshShape(), jax.devices()[:1])
    optimizer = make_optimizer(OptimizerOptions(), 10)
    abstract = abstract_state(task, optimizer, mesh)
    step = make_train_step(task, optimizer, mesh=mesh, abstract=abstract, microbatches=1, seed=0)
    batch = next(task.train_batches(0, 1, host=0, hosts=1))
    shapes = {name: jax.ShapeDtypeStruct(x.shape, x.dtype) for name, x in batch.items()}
    found = compile_step(step, abstract, shapes)
    assert isinstance(found, CompiledStep)
    assert found.collectives == []  # there is one device
    memory = measured(found.memory_analysis, abstract, activations=0)
    assert memory.parameters == device_bytes(abstract.params)
    assert memory.optimizer == 2 * memory.parameters
    # State and batch go in, the state comes out in its place: what the compiler adds is above.
    arguments = found.memory_analysis.argument_size_in_bytes
    assert memory.peak > arguments > memory.parameters + memory.optimizer
