"""AdamW and LAMB against plain NumPy loops."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax.traverse_util import flatten_dict, unflatten_dict

from bert_jax.errors import UserError
from bert_jax.models.architectures import BertForPreTraining
from bert_jax.models.config import BertConfig
from bert_jax.training.optimizer import OptimizerOptions, decay_mask, make_optimizer

STEPS = 5

# Names as in the model; the first axis under "layers" is the layer.
SHAPES = {
    "bert/embeddings/word_embeddings/embedding": (5, 3),
    "bert/embeddings/layer_norm/scale": (3,),
    "bert/encoder/layers/intermediate/kernel": (2, 3, 4),
    "bert/encoder/layers/intermediate/bias": (2, 4),
    "bert/encoder/layers/output_norm/bias": (2, 3),
    "mlm_head/bias": (5,),
    "nsp_head/kernel": (3, 2),
}
DECAYED = {name for name in SHAPES if name.endswith(("kernel", "embedding"))}


@pytest.fixture(scope="module")
def problem() -> tuple[dict[str, np.ndarray], list[dict[str, np.ndarray]]]:
    """Parameters, and gradients of some steps; the layers have very different sizes."""
    generator = np.random.default_rng(0)
    params = {name: generator.normal(0, 1, shape) for name, shape in SHAPES.items()}
    params["bert/encoder/layers/intermediate/kernel"][1] *= 20
    gradients = [
        {name: generator.normal(0, 0.5, shape) for name, shape in SHAPES.items()}
        for _ in range(STEPS)
    ]
    return params, gradients


def optimised(options: OptimizerOptions, problem) -> dict[str, np.ndarray]:
    """Parameters after all steps, by the code."""
    params, gradients = (
        jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), tree) for tree in problem
    )
    optimizer = make_optimizer(options, STEPS)
    nested = unflatten_dict(params, sep="/")
    state = optimizer.init(nested)
    update = jax.jit(optimizer.update)
    for gradient in gradients:
        updates, state = update(unflatten_dict(gradient, sep="/"), state, nested)
        nested = optax.apply_updates(nested, updates)
    return flatten_dict(nested, sep="/")


def reference(options: OptimizerOptions, problem) -> dict[str, np.ndarray]:
    """The same with float64 loops, one array (of one layer) after the other."""
    params, gradients = problem
    params = {name: value.copy() for name, value in params.items()}
    m = {name: np.zeros_like(value) for name, value in params.items()}
    v = {name: np.zeros_like(value) for name, value in params.items()}
    for step, gradient in enumerate(gradients):
        # Linear decay from step 0 after a warm-up of 2: 0, 1/2, then 1 - t/5 of the peak.
        rate = options.learning_rate * [0, 1 / 2, 3 / 5, 2 / 5, 1 / 5][step]
        norm = np.sqrt(sum((g**2).sum() for g in gradient.values()))
        limit = options.max_grad_norm
        shrink = min(1.0, limit / norm) if limit else 1.0
        for name in params:
            g = gradient[name] * shrink
            m[name] = options.beta1 * m[name] + (1 - options.beta1) * g
            v[name] = options.beta2 * v[name] + (1 - options.beta2) * g**2
            mean, square = m[name], v[name]
            if options.bias_correction:
                mean = mean / (1 - options.beta1 ** (step + 1))
                square = square / (1 - options.beta2 ** (step + 1))
            change = mean / (np.sqrt(square) + options.epsilon)
            if name in DECAYED:
                change = change + options.weight_decay * params[name]
                if options.name == "lamb":
                    change = scaled_by_trust(name, change, params[name])
            params[name] = params[name] - rate * change
    return params


def scaled_by_trust(name: str, change: np.ndarray, value: np.ndarray) -> np.ndarray:
    """albert/lamb_optimizer.py: each variable has its ratio, and each layer is a variable."""
    if "/layers/" in name:
        return np.stack([scaled_by_trust("", c, x) for c, x in zip(change, value, strict=True)])
    return change * np.linalg.norm(value) / np.linalg.norm(change)


CASES = {
    "as BERT has it": {},
    "bias correction": {"bias_correction": True},
    "no clipping": {"max_grad_norm": 0.0},
    "a limit that is not reached": {"max_grad_norm": 1e6},
    "no decay": {"weight_decay": 0.0},
    "much decay": {"weight_decay": 0.5},
    "other moments": {"beta1": 0.5, "beta2": 0.98, "epsilon": 1e-3},
}


@pytest.mark.parametrize("name", ["adamw", "lamb"])
@pytest.mark.parametrize("case", CASES)
def test_parameters_after_some_steps(problem, name, case):
    options = OptimizerOptions(
        **{"name": name, "learning_rate": 0.1, "warmup_steps": 2} | CASES[case]
    )
    found, expected = optimised(options, problem), reference(options, problem)
    for name in SHAPES:
        np.testing.assert_allclose(found[name], expected[name], rtol=2e-5, atol=2e-6, err_msg=name)


def test_what_decays():
    module = BertForPreTraining(BertConfig.from_size("tiny"))
    shapes = jax.eval_shape(module.init, jax.random.key(0), jnp.zeros((1, 8), jnp.int32))["params"]
    decays = flatten_dict(decay_mask(shapes), sep="/")
    assert {name for name, decay in decays.items() if decay} == {
        name for name in decays if name.endswith(("/kernel", "/embedding"))
    }
    assert sum(decays.values()) == 3 + 6 + 3
    assert len(decays) == 30


def test_without_gradients_only_the_decay_moves_weights(problem):
    params, _ = problem
    zeros = [{name: np.zeros(shape) for name, shape in SHAPES.items()}]
    options = OptimizerOptions(learning_rate=0.1, weight_decay=0.01)
    found = optimised(options, (params, zeros))
    for name in SHAPES:
        factor = 1 - 0.1 * 0.01 if name in DECAYED else 1.0
        np.testing.assert_allclose(found[name], factor * params[name], rtol=1e-6)


def test_an_unknown_name():
    with pytest.raises(UserError, match="optimizer.name 'sgd' is unknown; known are adamw, lamb"):
        make_optimizer(OptimizerOptions(name="sgd"), 10)
