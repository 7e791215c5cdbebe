"""What the compiled step of a layout keeps on a device and sends between eight of them."""

import json
import os
import re
import sys
from pathlib import Path

import pytest

from tests.runs import completed

pytestmark = pytest.mark.slow

LAYOUTS = {
    "data 8": {"mesh.data": 8},
    "data 8, shared moments": {"mesh.data": 8, "optimizer.shard_over_data": True},
    "fsdp 8": {"mesh.data": 1, "mesh.fsdp": 8},
    "tensor 4, data 2": {"mesh.data": 2, "mesh.tensor": 4},
}

# No two sizes are alike, so that a shape tells what it is of.
BATCH, LENGTH, WORDS = 40, 16, 3
WIDTH, INNER, VOCAB = 32, 96, 384  # 40 words, padded
KEYS = {
    "precision": "float32",
    "model.hidden_size": WIDTH,
    "model.num_hidden_layers": 2,
    "model.num_attention_heads": 4,
    "model.intermediate_size": INNER,
    "model.max_position_embeddings": LENGTH,
    "data.length": LENGTH,
    "data.max_predictions": WORDS,
    "train.global_batch_size": BATCH,
    "train.steps": 20_000,
}

COMPILE = """
import json, sys
import jax
from bert_jax.experiment import Experiment
from bert_jax.config import load_config, set_key
from bert_jax.sharding.mesh import MeshShape, make_mesh
from bert_jax.sharding.rules import batch_sharding
from bert_jax.training.optimizer import make_optimizer
from bert_jax.training_options import OptimizerOptions
from bert_jax.training.step import abstract_state, make_train_step

actual = {}
for name, keys in json.loads(sys.argv[2]).items():
    config = load_config(sys.argv[1])
    for key, value in keys.items():
        set_key(config, key, value, where="test")
    mesh = make_mesh(MeshShape(**config.mesh))
    task = Experiment.from_config(config).task
    optimizer = make_optimizer(OptimizerOptions(**config.optimizer), config.train.steps)
    abstract = abstract_state(task, optimizer, mesh)
    step = make_train_step(
        task, optimizer, mesh=mesh, abstract=abstract, microbatches=1, seed=0
    )
    rows = next(task.train_batches(0, 1, host=0, hosts=1))
    batch = {
        key: jax.ShapeDtypeStruct(value.shape, value.dtype, sharding=batch_sharding(mesh))
        for key, value in rows.items()
    }
    compiled = step.trace(abstract, batch).lower().compile()
    actual[name] = {
        "state": compiled.memory_analysis().argument_size_in_bytes,
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(abstract.params)),
        "program": compiled.as_text(),
    }
print(json.dumps(actual))
"""


@pytest.fixture(scope="module")
def compiled(tiny_corpus):
    config = Path(__file__).parents[2] / "configs" / "pretrain.py"
    layouts = {name: KEYS | keys for name, keys in LAYOUTS.items()}
    done = completed(
        [sys.executable, "-c", COMPILE, f"{config}:corpus={tiny_corpus}", json.dumps(layouts)],
        env=os.environ | {"JAX_NUM_CPU_DEVICES": "8"},
    )
    assert done.returncode == 0, done.stderr
    assert "rematerialization" not in done.stderr, "the compiler gave up on a sharding"
    return json.loads(done.stdout)


def shapes_sent(program: str, kind: str) -> set[tuple[int, ...]]:
    """The shapes of what a kind of collective gives, without axes of 1."""
    results = re.findall(rf"= (.*?) {kind}(?:-start)?\(", program)
    shapes = [shape for result in results for shape in re.findall(r"\w\[([\d,]*)\]", result)]
    return {tuple(int(n) for n in shape.split(",") if n not in ("", "1")) for shape in shapes}


def test_shared_moments_take_an_eighth(compiled):
    parameters = compiled["data 8"]["parameters"]
    # Parameters without an axis D for `embed`: LayerNorms, query, key and value biases, biases of
    # the intermediate layers and of the words, and of the three dense heads.
    small = (2 * 2 + 2) * 2 * WIDTH + 2 * 3 * WIDTH + 2 * INNER + VOCAB + 2 * WIDTH + 2
    split = (parameters - small) // 8 + small
    batch = compiled["data 8"]["state"] - 4 * 3 * parameters
    assert 0 < batch < 0.01 * 4 * parameters
    assert compiled["data 8, shared moments"]["state"] - batch == 4 * (parameters + 2 * split)
    assert compiled["fsdp 8"]["state"] - batch == 4 * 3 * split


@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_device_sees_the_activations_of_all(compiled, layout):
    program = compiled[layout]["program"]
    for kind in ("all-gather", "all-to-all", "collective-permute"):
        for shape in shapes_sent(program, kind):
            assert BATCH not in shape, (kind, shape)
    assert shapes_sent(program, "all-reduce"), "the parser matches nothing"


def test_split_parameters_are_gathered_and_nothing_else(compiled):
    program = compiled["fsdp 8"]["program"]
    layers, heads, head = 2, 4, 8
    assert shapes_sent(program, "all-gather") == {
        (VOCAB, WIDTH),
        (LENGTH, WIDTH),
        (2, WIDTH),  # of the token types, and the layers' output biases
        (layers, WIDTH, heads, head),
        (layers, heads, head, WIDTH),
        (layers, WIDTH, INNER),
        (layers, INNER, WIDTH),
        (WIDTH, WIDTH),
        (WIDTH, 2),
    }
    assert not shapes_sent(program, "all-to-all")
    assert not shapes_sent(program, "collective-permute")


def test_word_scores_stay_where_their_part_of_the_vocabulary_is(compiled):
    program = compiled["tensor 4, data 2"]["program"]
    rows = BATCH // 2
    # Of the scores [rows, words, V], each device sends its maximum, where that is, and sums.
    assert shapes_sent(program, "all-gather") == {(rows, WORDS, 4)}
    for kind in ("all-reduce", "all-to-all", "collective-permute"):
        assert not any(
            shape[:2] == (rows, WORDS) and shape[-1] in (VOCAB, VOCAB // 4)
            for shape in shapes_sent(program, kind)
        )


def test_shared_moments_are_gathered_as_parameters(compiled):
    """Once per step: each parameter whole, as after the sum of the gradients without sharing."""
    plain = shapes_sent(compiled["data 8"]["program"], "all-gather")
    shared = shapes_sent(compiled["data 8, shared moments"]["program"], "all-gather")
    assert plain == set()
    assert {(VOCAB, WIDTH), (2, WIDTH, INNER), (2, WIDTH, 4, 8), (WIDTH, WIDTH)} <= shared
