"""AdamW, LAMB and StableAdamW against plain NumPy loops."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict, unflatten_dict

from bert_jax.errors import UserError
from bert_jax.families import bert
from bert_jax.models.encoder import abstract_params
from bert_jax.models.heads.pretraining import PreTrainingModel
from bert_jax.training.optimizer import decay_mask, make_optimizer
from bert_jax.training_options import OptimizerOptions

STEPS = 5

# Names as in the model; the first axis under "layers" is the layer. Few shapes: each is compiled.
SHAPES = {
    "bert/embeddings/word_embeddings/embedding": (2, 3),
    "bert/embeddings/layer_norm/scale": (2, 3),
    "bert/encoder/layers/intermediate/kernel": (2, 3),
    "bert/encoder/layers/output_norm/bias": (2, 3),
    "mlm_head/bias": (2, 3),
    "nsp_head/kernel": (2, 3),
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


def optimised(options: OptimizerOptions, problem, jit=lambda f: f) -> dict[str, np.ndarray]:
    """Parameters after all steps, by the code; `jit` is `jax.jit` where that is tested, too."""
    params, gradients = jax.tree.map(lambda x: jnp.asarray(np.float32(x)), problem)
    optimizer = make_optimizer(options, STEPS)
    nested = unflatten_dict(params, sep="/")
    state = optimizer.init(nested)

    @jit
    def update(gradient, state, params, rate):
        # A loss with the given gradient, where it is taken.
        def loss(params):
            held = optimizer.stop_frozen_gradients(params)
            return sum(jax.tree.leaves(jax.tree.map(lambda g, p: (g * p).sum(), gradient, held)))

        return optimizer.update(jax.grad(loss)(params), state, params, rate)

    for step, gradient in enumerate(gradients):
        rate = optimizer.schedule(step)
        nested, state = update(unflatten_dict(gradient, sep="/"), state, nested, rate)
    return flatten_dict(nested, sep="/")


def reference(options: OptimizerOptions, problem) -> dict[str, np.ndarray]:
    """The same with float64 loops, one array (of one layer) after the other."""
    params, gradients = problem
    factors = reference_factors(options)
    params = {name: value.copy() for name, value in params.items()}
    m = {name: np.zeros_like(value) for name, value in params.items()}
    v = {name: np.zeros_like(value) for name, value in params.items()}
    for step, gradient in enumerate(gradients):
        # Linear decay from step 0 after a warm-up of 2: 0, 1/2, then 1 - t/5 of the peak.
        rate = options.learning_rate * [0, 1 / 2, 3 / 5, 2 / 5, 1 / 5][step]
        gradient = {name: value * (factors[name] > 0) for name, value in gradient.items()}
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
            if options.name == "stable_adamw":
                change = change / stabilizer(name, g, square, options.epsilon)
            params[name] = params[name] - rate * factors[name] * change
    return params


def reference_factors(options: OptimizerOptions) -> dict[str, np.ndarray]:
    """What each rate is multiplied by, written down for two layers."""
    decay, head = options.layer_decay, options.head_learning_rate / options.learning_rate or 1.0
    layers = np.array([decay**2, decay])
    embeddings = decay**3
    if options.freeze_layers or options.freeze_encoder:
        embeddings = 0.0
        layers[: 2 if options.freeze_encoder else options.freeze_layers] = 0
    return {
        name: layers.reshape(-1, *[1] * (len(shape) - 1))
        if "/layers/" in name
        else np.array(embeddings if "/embeddings/" in name else head)
        for name, shape in SHAPES.items()
    }


def scaled_by_trust(name: str, change: np.ndarray, value: np.ndarray) -> np.ndarray:
    """albert/lamb_optimizer.py: each variable has its ratio, and each layer is a variable."""
    if "/layers/" in name:
        return np.stack([scaled_by_trust("", c, x) for c, x in zip(change, value, strict=True)])
    return change * np.linalg.norm(value) / np.linalg.norm(change)


def stabilizer(name: str, g: np.ndarray, square: np.ndarray, epsilon: float) -> np.ndarray:
    """optimi's StableAdamW: max(1, RMS) of each variable, and each layer is a variable."""
    if "/layers/" in name:
        layers = zip(g, square, strict=True)
        return np.stack([np.full_like(g[0], stabilizer("", *layer, epsilon)) for layer in layers])
    return np.maximum(1, np.sqrt((g**2 / np.maximum(square, epsilon**2)).mean()))


CASES = {
    "as BERT has it": {},
    "bias correction": {"bias_correction": True},
    "no clipping": {"max_grad_norm": 0.0},
    "a limit that is not reached": {"max_grad_norm": 1e6},
    "no decay": {"weight_decay": 0.0},
    "much decay": {"weight_decay": 0.5},
    "other moments": {"beta1": 0.5, "beta2": 0.98, "epsilon": 1e-3},
    "layer decay": {"layer_decay": 0.5},
    "a head of its own": {"head_learning_rate": 0.4, "layer_decay": 0.9},
    "a frozen layer": {"freeze_layers": 1, "layer_decay": 0.9},
    "a frozen encoder": {"freeze_encoder": True, "head_learning_rate": 0.05},
    "all layers frozen": {"freeze_layers": 2, "bias_correction": True},
}


# What the trust ratio has to do with.
LAMB_CASES = ("as BERT has it", "bias correction", "much decay", "a frozen layer")


def test_stable_adamw(problem):
    """With gradients that grow tenfold in each step, so that the rate is lowered."""
    params, gradients = problem
    growing = [{n: g * 10**step for n, g in each.items()} for step, each in enumerate(gradients)]
    options = OptimizerOptions(
        name="stable_adamw", learning_rate=0.1, warmup_steps=2, bias_correction=True, beta2=0.98,
        max_grad_norm=0.0, weight_decay=0.5,
    )  # fmt: skip
    expected = reference(options, (params, growing))
    without = reference(dataclasses.replace(options, name="adamw"), (params, growing))
    actual = optimised(options, (params, growing), jax.jit)
    for name in SHAPES:
        np.testing.assert_allclose(actual[name], expected[name], rtol=2e-5, atol=2e-6, err_msg=name)
        assert np.abs(without[name] - expected[name]).max() > 0.005


def test_stable_adamw_corrects_its_moments():
    with pytest.raises(
        UserError, match="^optimizer.bias_correction is False; .*set optimizer.bias"
    ):
        OptimizerOptions(name="stable_adamw")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "cases"), [("adamw", CASES), ("lamb", LAMB_CASES)])
def test_parameters_after_some_steps(problem, name, cases):
    for case in cases:
        changes = CASES[case]
        options = OptimizerOptions(
            **{"name": name, "learning_rate": 0.1, "warmup_steps": 2} | changes
        )
        jit = jax.jit if case == "as BERT has it" else lambda f: f
        actual, expected = optimised(options, problem, jit), reference(options, problem)
        for key in SHAPES:
            np.testing.assert_allclose(
                actual[key], expected[key], rtol=2e-5, atol=2e-6, err_msg=f"{case}: {key}"
            )


def test_a_trust_ratio_needs_two_norms(problem):
    """Where the matrix or its update is 0, the ratio is 1: else nothing would ever leave 0."""
    params = {name: value.copy() for name, value in problem[0].items()}
    word = "bert/embeddings/word_embeddings/embedding"
    layers = "bert/encoder/layers/intermediate/kernel"
    params[word][:] = 0
    params[layers][0] = 0
    gradients = [{name: np.ones(shape) for name, shape in SHAPES.items()}]
    gradients[0]["nsp_head/kernel"][:] = 0
    plain = {"learning_rate": 0.1, "weight_decay": 0.0, "max_grad_norm": 0.0, "epsilon": 1e-6}
    actual = optimised(OptimizerOptions(name="lamb", **plain), (params, gradients))
    # The first step of Adam without correction: 0.1 / sqrt(0.001) = 3.1623 for every element.
    np.testing.assert_allclose(actual[word], -0.31623, rtol=1e-3)
    np.testing.assert_allclose(actual[layers][0], -0.31623, rtol=1e-3)
    np.testing.assert_array_equal(
        actual["nsp_head/kernel"], params["nsp_head/kernel"].astype(np.float32)
    )
    # The other layer moves by a tenth of its norm.
    moved = np.linalg.norm(actual[layers][1] - params[layers][1])
    assert moved == pytest.approx(0.1 * np.linalg.norm(params[layers][1]), rel=1e-5)


def test_decayed_parameters():
    shapes = abstract_params(PreTrainingModel(bert.FAMILY.new_config("tiny")))
    decays = flatten_dict(decay_mask(shapes), sep="/")
    assert {name for name, decay in decays.items() if decay} == {
        name for name in decays if name.endswith(("/kernel", "/embedding"))
    }
    assert sum(decays.values()) == 3 + 6 + 3
    assert len(decays) == 30


def test_entirely_frozen_parameters_have_no_moments(problem):
    params = unflatten_dict(problem[0], sep="/")

    def moments(**options) -> int:
        state = make_optimizer(OptimizerOptions(**options), 10).init(params)
        return sum(np.size(leaf) for leaf in jax.tree.leaves(state))

    everything = sum(np.prod(shape) for shape in SHAPES.values())
    assert moments() == moments(layer_decay=0.9) == 2 * everything
    # The heads have 6 + 6 parameters, and so have the embeddings.
    assert moments(freeze_encoder=True) == moments(freeze_layers=2) == 2 * 12
    assert moments(freeze_layers=1) == 2 * (everything - 12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "sgd"}, "optimizer.name is 'sgd'; known are adamw, lamb, stable_adamw"),
        (
            {"learning_rate": 0.0, "head_learning_rate": 1e-3},
            "optimizer.learning_rate is 0.0; it must be above 0 beside optimizer.head_",
        ),
    ],
)
def test_bad_options_name_the_key(options, message):
    with pytest.raises(UserError) as raised:
        OptimizerOptions(**options)
    assert str(raised.value).startswith(message)


def test_a_warm_up_by_its_share():
    by_share = make_optimizer(OptimizerOptions(learning_rate=8.0, warmup_ratio=0.4), 10).schedule
    by_steps = make_optimizer(OptimizerOptions(learning_rate=8.0, warmup_steps=4), 10).schedule
    for step in range(11):
        assert float(by_share(step)) == float(by_steps(step))
    assert float(by_share(3)) == 6.0
