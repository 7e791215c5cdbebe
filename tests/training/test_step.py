"""One step of training and of evaluation: gradients, micro-batches, dropout, metrics."""

import dataclasses
import functools
import gc
import weakref
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params
from jax.sharding import NamedSharding, PartitionSpec
from scipy.special import log_softmax

from bert_jax.errors import OptionError, UserError
from bert_jax.inference.evaluation import evaluate
from bert_jax.models.execution import Execution
from bert_jax.models.surgery import without_padding
from bert_jax.sharding.hosts import to_global
from bert_jax.sharding.mesh import MeshShape, make_mesh
from bert_jax.tasks.base.task import mean_losses, means
from bert_jax.training.optimizer import make_optimizer
from bert_jax.training.step import (
    TrainState,
    abstract_state,
    check_memory,
    explain_step_out_of_memory,
    make_train_step,
    new_state,
)
from bert_jax.training_options import OptimizerOptions, TrainOptions
from tests.random_params import random_params
from tests.training.line_task import LineTask

EXECUTION = Execution()
OPTIONS = OptimizerOptions(learning_rate=1e-2, decay="constant")
MESH = make_mesh(MeshShape(), jax.devices()[:1])


@pytest.fixture(scope="module")
def make_step(make_tiny_task, tiny_config):
    """Compiles a step, each kind once."""

    @functools.cache
    def make(microbatches=1, options=OPTIONS, execution=EXECUTION):
        task, optimizer = make_tiny_task(tiny_config, execution), make_optimizer(options, 100)
        abstract = abstract_state(task, optimizer, MESH)
        return make_train_step(
            task, optimizer, mesh=MESH, abstract=abstract, microbatches=microbatches, seed=3
        )

    return make


@pytest.fixture(scope="module")
def batch(tiny_batch):
    return to_global(MESH, tiny_batch)


@pytest.fixture(scope="module")
def new(make_tiny_task, tiny_config):
    """Makes a state of step 0; a step consumes it. Its parameters are always the same."""
    task = make_tiny_task(tiny_config)
    params = random_params(task.module, scale=0.02)

    def make(options=OPTIONS):
        abstract = abstract_state(task, make_optimizer(options, 100), MESH)
        zeros = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), abstract)
        state = zeros.replace(params=jax.tree.map(np.copy, params))
        return jax.device_put(state, NamedSharding(MESH, PartitionSpec()))

    return make


def flat(tree) -> np.ndarray:
    return np.concatenate([np.asarray(leaf, np.float64).ravel() for leaf in jax.tree.leaves(tree)])


def test_micro_batches_give_the_update_of_the_whole_batch():
    """By sums of weighted rows: the parts differ in weight, so a mean of means would differ."""
    task, optimizer = LineTask(), make_optimizer(OptimizerOptions(learning_rate=0.1), 10)
    # Without dropout, which draws other numbers for each part.
    task.forward = lambda params, batch, **_: LineTask.forward(task, params, batch)
    abstract = abstract_state(task, optimizer, MESH)
    batch = next(task.train_batches(0, 1, host=0, hosts=1))
    batch["weights"] = np.float32([0, 0, 0, 1, 1, 0.5, 1, 1])

    def one_step(microbatches):
        step = make_train_step(
            task, optimizer, mesh=MESH, abstract=abstract, microbatches=microbatches, seed=0
        )
        state = new_state(task, optimizer, abstract, seed=0)
        before = jax.device_get(state.params)
        state, metrics = step(state, to_global(MESH, batch))
        return before, jax.device_get((state, metrics))

    before, (whole, whole_metrics) = one_step(1)
    _, (parts, parts_metrics) = one_step(4)
    np.testing.assert_allclose(flat(parts.params), flat(whole.params), rtol=1e-6)
    np.testing.assert_allclose(flat(parts.opt_state), flat(whole.opt_state), rtol=1e-5)
    # The loss by hand.
    kernel, bias = before["classifier"]["kernel"][:, 0], before["classifier"]["bias"]
    error = batch["input_ids"] @ kernel + bias - batch["labels"]
    expected = (batch["weights"] * error**2).sum() / 4.5
    for metrics in (whole_metrics, parts_metrics):
        assert float(metrics["loss"]) == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow
def test_the_loss_falls_on_one_batch(make_step, new, batch):
    step, state, losses = make_step(), new(), []
    for _ in range(30):
        state, metrics = step(state, batch)
        losses.append(float(metrics["loss"]))
    # At first every word and both labels are about equally likely.
    assert losses[0] == pytest.approx(np.log(40) + np.log(2), rel=0.05)
    assert losses[-1] < 0.6 * losses[0]
    assert int(state.step) == 30


@pytest.mark.slow
def test_dropout_depends_on_the_step_the_seed_and_the_micro_batch():
    task, optimizer = LineTask(), make_optimizer(OPTIONS, 100)
    abstract = abstract_state(task, optimizer, MESH)
    rows = next(task.train_batches(0, 1, host=0, hosts=1))
    rows = {name: values[:4].repeat(2, axis=0) for name, values in rows.items()}

    def loss_at(step: int, seed: int, part: int = 0) -> float:
        """The loss of one of two micro-batches, which have the same rows."""
        run = make_train_step(
            task, optimizer, mesh=MESH, abstract=abstract, microbatches=2, seed=seed
        )
        batch = to_global(MESH, rows | {"weights": np.float32([1 - part, part] * 4)})
        ones = jax.tree.map(lambda leaf: np.ones(leaf.shape, leaf.dtype), abstract)
        state = jax.device_put(
            ones.replace(step=np.int32(step)), NamedSharding(MESH, PartitionSpec())
        )
        return float(run(state, batch)[1]["loss"])

    assert loss_at(5, 3) == loss_at(5, 3)
    others = loss_at(6, 3), loss_at(5, 4), loss_at(5, 2**32 - 1), loss_at(5, 3, part=1)
    assert len({loss_at(5, 3), *others}) == 5


@pytest.mark.slow
def test_under_bfloat16_all_that_is_kept_or_summed_is_float32(
    make_step, make_tiny_task, tiny_config, tiny_batch
):
    """By the types of the program, which is not compiled."""
    # As on an accelerator: a CPU's kernel of attention multiplies in float32.
    execution = Execution(dtype="bfloat16", platform="gpu")
    task, optimizer = make_tiny_task(tiny_config, execution), make_optimizer(OPTIONS, 100)
    abstract = abstract_state(task, optimizer, MESH)
    step = make_step(execution=execution)
    state, metrics = step.trace(abstract, task.batch_shapes()).out_info
    kept = jax.tree.leaves((state.params, state.opt_state, metrics))
    assert {leaf.dtype for leaf in kept} == {np.dtype(np.float32)}
    assert len(kept) == 3 * 30 + 8

    # exp, max and sum: softmax and the losses; mean (sum) and root: LayerNorm.
    actual: dict[str, set[str]] = {}
    for equation in equations(jax.make_jaxpr(task.loss_sums)(abstract.params, tiny_batch).jaxpr):
        dtypes = {str(variable.aval.dtype) for variable in equation.invars}
        actual.setdefault(equation.primitive.name, set()).update(dtypes)
    for primitive in ("erf", "exp", "log", "reduce_max", "reduce_sum", "rsqrt"):
        assert actual[primitive] == {"float32"}, primitive
    # What is multiplied is bfloat16, and so is what lies between.
    assert actual["dot_general"] == {"bfloat16"}
    assert actual["tanh"] == {"bfloat16"}

    # So it is on the way back: a product of two dtypes would be one of float32 numbers.
    def loss(params):
        return sum(sums["loss"] for sums in task.loss_sums(params, tiny_batch).values())

    backward = equations(jax.make_jaxpr(jax.grad(loss))(abstract.params).jaxpr)
    products = [equation for equation in backward if equation.primitive.name == "dot_general"]
    dtypes = {str(variable.aval.dtype) for equation in products for variable in equation.invars}
    assert dtypes == {"bfloat16"}


def equations(jaxpr):
    """All equations of a program, those inside of others too."""
    for equation in jaxpr.eqns:
        inner = list(jaxprs_in_params(equation.params))
        if not inner:
            yield equation
        for part in inner:
            yield from equations(part)


@pytest.mark.slow
def test_padding_of_the_vocabulary_changes_no_training(
    make_step, make_tiny_task, tiny_config, batch
):
    """By LAMB, which looks at the norm of a whole table; with decay, of which 0 keeps nothing."""
    options = dataclasses.replace(OPTIONS, name="lamb", weight_decay=0.1)
    optimizer = make_optimizer(options, 100)

    def trained(execution):
        task = make_tiny_task(tiny_config, execution)
        state = new_state(task, optimizer, abstract_state(task, optimizer, MESH), seed=0)
        step = make_step(options=options, execution=execution)
        losses = []
        for _ in range(3):
            state, metrics = step(state, batch)
            losses.append([float(metrics[name]) for name in ("loss", "mlm_accuracy")])
        return state.params, losses

    plain, plain_losses = trained(EXECUTION)
    padded, padded_losses = trained(Execution(pad_vocab_to_multiple_of=64))
    table = padded["bert"]["embeddings"]["word_embeddings"]["embedding"]
    assert table.shape == (64, 16)
    assert not np.asarray(table[40:]).any()
    np.testing.assert_allclose(padded_losses, plain_losses, rtol=1e-6)
    np.testing.assert_allclose(
        flat(without_padding(padded, tiny_config)), flat(plain), rtol=0, atol=1e-6
    )


@pytest.mark.slow
def test_the_gradient_norm_counts_only_parameters_that_learn(make_step, new, batch):
    """After one step the moments m are a tenth of the gradient, which shows its norm."""
    everything, metrics = make_step()(new(), batch)
    options = dataclasses.replace(OPTIONS, freeze_encoder=1, weight_decay=0.5)
    _, held = make_step(options=options)(new(options), batch)
    # The gradient was clipped to norm 1 before it was averaged.
    scale = 0.1 / max(float(metrics["gradient_norm"]), 1.0)
    moments = everything.opt_state[1].mu
    learns = [moments["mlm_head"], moments["nsp_head"], moments["bert"]["pooler"]]
    assert float(held["gradient_norm"]) == pytest.approx(
        np.linalg.norm(flat(learns)) / scale, rel=1e-4
    )
    assert float(held["gradient_norm"]) < float(metrics["gradient_norm"])
    assert float(held["loss"]) == pytest.approx(float(metrics["loss"]), rel=1e-6)


def test_metrics_by_name_and_meaning(make_step, make_tiny_task, new, tiny_config, tiny_batch):
    after, metrics = make_step()(new(), to_global(MESH, tiny_batch))
    metrics = {name: float(value) for name, value in metrics.items()}
    task, params = make_tiny_task(tiny_config), new().params
    inputs = {name: tiny_batch[name] for name in ("input_ids", "token_type_ids", "attention_mask")}
    output = jax.device_get(jax.jit(task.module.apply)({"params": params}, **inputs))
    chosen = tiny_batch["masked_lm_weights"] > 0
    words = output.prediction_logits[np.arange(8)[:, None], tiny_batch["masked_lm_positions"]]
    expected = {}
    for part, logits, labels in (
        ("mlm", words[chosen], tiny_batch["masked_lm_ids"][chosen]),
        ("nsp", output.seq_relationship_logits, tiny_batch["next_sentence_labels"]),
    ):
        losses = -log_softmax(np.float64(logits), axis=-1)[np.arange(len(labels)), labels]
        expected |= {
            f"{part}_loss": losses.mean(),
            f"{part}_accuracy": (logits.argmax(-1) == labels).mean(),
        }
    assert metrics == pytest.approx(
        expected
        | {
            "loss": expected["mlm_loss"] + expected["nsp_loss"],
            "gradient_norm": metrics["gradient_norm"],
            "learning_rate": 1e-2,
            "parameter_norm": np.linalg.norm(flat(after.params)),
        },
        rel=1e-5,
    )
    summary = task.summary(metrics)
    assert summary["mlm_perplexity"] == pytest.approx(np.exp(expected["mlm_loss"]), rel=1e-5)
    assert task.summary({"mlm_loss": 1e9})["mlm_perplexity"] == pytest.approx(np.exp(20))


def test_an_evaluation_is_the_same_for_any_batches(make_tiny_task, new, tiny_config, tiny_batch):
    task, params = make_tiny_task(tiny_config), new().params
    nothing = {name: np.zeros_like(value) for name, value in tiny_batch.items()}
    padded = {n: np.concatenate([v[5:], nothing[n][:5]]) for n, v in tiny_batch.items()}
    start = {n: np.concatenate([v[:5], nothing[n][:3]]) for n, v in tiny_batch.items()}
    whole = mean_losses(task, params, [tiny_batch], MESH)
    parts = mean_losses(task, params, [padded, nothing, start], MESH)
    assert list(whole) == list(parts)
    assert parts == pytest.approx(whole, rel=1e-6)
    assert set(whole) == {
        "loss", "mlm_loss", "mlm_accuracy", "mlm_perplexity", "nsp_loss", "nsp_accuracy",
    }  # fmt: skip


def test_an_evaluated_task_is_not_kept(make_tiny_task, new, tiny_config):
    gc.freeze()  # what other tests have left need not be searched
    task, params = make_tiny_task(tiny_config), new().params
    first, second = (evaluate(task, params, MESH).metrics for _ in range(2))
    assert first == second

    reference = weakref.ref(task)
    del task
    gc.collect()
    gc.unfreeze()
    assert reference() is None


def test_means_by_hand():
    sums = {
        "mlm": {"loss": np.float32(6), "accuracy": np.float32(3)},
        "nsp": {"loss": np.float32(0), "accuracy": np.float32(0)},
    }
    actual = means(sums, {"mlm": np.float32(4), "nsp": np.float32(0)})
    assert actual == {
        "loss": 1.5, "mlm_loss": 1.5, "mlm_accuracy": 0.75, "nsp_loss": 0.0, "nsp_accuracy": 0.0,
    }  # fmt: skip


@pytest.mark.slow
def test_a_new_state_from_parameters(make_tiny_task, tiny_config, monkeypatch):
    task, optimizer = make_tiny_task(tiny_config), make_optimizer(OPTIONS, 100)
    abstract = abstract_state(task, optimizer, MESH)
    drawn = new_state(task, optimizer, abstract, seed=3)
    ones = jax.tree.map(lambda leaf: np.ones(leaf.shape, np.float32), abstract.params)
    # Nothing is drawn, which takes seconds to compile.
    monkeypatch.setattr("bert_jax.training.step.init_params", None)
    state = new_state(task, optimizer, abstract, seed=3, params=ones)
    assert all((np.asarray(leaf) == 1).all() for leaf in jax.tree.leaves(state.params))
    assert not any(np.asarray(leaf).any() for leaf in jax.tree.leaves(state.opt_state))
    assert int(state.step) == 0
    for one in (drawn, state):
        assert jax.tree.map(lambda leaf: leaf.sharding, one) == jax.tree.map(
            lambda leaf: leaf.sharding, abstract
        )


def test_too_little_memory_is_one_line_with_its_remedy():
    options = TrainOptions(global_batch_size=64, microbatches=2)
    with pytest.raises(OptionError) as actual, explain_step_out_of_memory(options, MESH):
        jax.block_until_ready(jnp.zeros(1 << 50, jnp.int8))
    (line,) = str(actual.value).splitlines()
    assert line.startswith("the memory of a device does not suffice for 32 rows at a time")
    assert "RESOURCE_EXHAUSTED" in line
    assert actual.value.key == "model.remat"
    assert "set model.remat=full, split the state by mesh.fsdp" in line


def test_a_training_that_can_never_fit_is_refused():
    mesh = make_mesh(MeshShape(), jax.devices()[:1])

    def table(parameters):
        sharding = NamedSharding(mesh, PartitionSpec())
        return jax.ShapeDtypeStruct((parameters, 1000), jnp.float32, sharding=sharding)

    def check(parameters, rows, microbatches=1, teacher=None):
        state = TrainState(*[table(parameters)] * 3)
        options = TrainOptions(global_batch_size=rows, microbatches=microbatches)
        task = SimpleNamespace(
            description=SimpleNamespace(config=SimpleNamespace(hidden_size=128)),
            frozen_inputs=SimpleNamespace(abstract_params=lambda mesh: teacher and table(teacher)),
        )
        check_memory(task, state, options, mesh)

    check(1, 32)
    # 10⁹ rows of three tokens, each with 3 int32 numbers and 128 bfloat16 numbers: 804 · 10⁹ bytes.
    with pytest.raises(
        UserError, match=r"^a batch of 1,000,000,000 rows needs more than 748\.8 GiB"
    ):
        check(1, 10**9)
    with pytest.raises(
        UserError, match="each device, which has .* GiB; lower train.global_batch_size"
    ):
        check(1, 10**12 // 1000, 1000)  # the batch itself remains
    with pytest.raises(UserError, match="^the parameters and the moments .* need 11,175.9 GiB of"):
        check(10**9, 32)
    message = r"^the parameters, the teacher's parameters and the moments .* need 3,725\.3 GiB of"
    with pytest.raises(UserError, match=message):
        check(1, 32, teacher=10**9)
