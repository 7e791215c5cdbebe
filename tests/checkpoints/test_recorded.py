"""Every model against numbers that Hugging Face's gave, recorded by `record_reference.py`."""

import functools
import json
import runpy
from pathlib import Path

import jax
import numpy as np
import pytest
from safetensors.numpy import save_file

import bert_jax
from bert_jax.checkpoints.parameters import to_tensors
from bert_jax.families.bert import HUGGINGFACE
from bert_jax.models.encoder import Encoder

REFERENCE = runpy.run_path(str(Path(__file__).with_name("record_reference.py")))
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def test_every_case_is_recorded():
    assert {path.stem for path in REFERENCE["RECORDED"].iterdir()} == set(REFERENCE["CASES"])


@pytest.fixture(scope="module", autouse=True)
def _quick_compilation():
    """Most of the time would go into making code fast that runs once."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


# Each head, each way of the word head; the other activations differ in one function.
SLOW = {"encoder_gelu_new", "encoder_relu", "encoder_silu", "masked_lm_silu"}
CASES = [
    pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in REFERENCE["CASES"]
]


@pytest.fixture(scope="module", params=CASES)
def recorded(request):
    path = REFERENCE["RECORDED"] / f"{request.param}.json"
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def model(recorded, tmp_path_factory):
    """The recorded model, from a model directory with the tensors that transformers saves."""
    directory = tmp_path_factory.mktemp("model")
    (directory / "config.json").write_text(json.dumps(recorded["config"]))
    words = [f"w{number}" for number in range(recorded["config"]["vocab_size"] - len(SPECIAL))]
    (directory / "vocab.txt").write_text("\n".join(SPECIAL + words) + "\n")
    tensors = {
        name: REFERENCE["random_tensor"](name, shape) for name, shape in recorded["tensors"].items()
    }
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    return bert_jax.load(directory)


@pytest.fixture(scope="module")
def inputs(recorded):
    return {name: np.array(value) for name, value in recorded["inputs"].items()}


def gradients_of(model, inputs, names):
    """Those of the weighted sum of the outputs, under the names of transformers."""

    def score(params):
        outputs = named_outputs(model.module, params, inputs, names)
        return sum(
            (value * REFERENCE["score_weights"](name, value.shape, inputs["attention_mask"])).sum()
            for name, value in outputs.items()
            if not name.startswith("hidden_states")
        )

    return to_tensors(jax.jit(jax.grad(score))(model.params), HUGGINGFACE, model.module)


def named_outputs(module, params, inputs, names):
    """What a model returns, under the names of transformers."""
    if not isinstance(module, Encoder):
        output = module.apply({"params": params}, **inputs)
        return dict(zip(names, output if isinstance(output, tuple) else (output,), strict=True))
    output = module.apply({"params": params}, **inputs, output_hidden_states=True)._asdict()
    layers = enumerate(output.pop("hidden_states"))
    outputs = output | {f"hidden_states {layer}": value for layer, value in layers}
    return {name: value for name, value in outputs.items() if value is not None}


def compare(array, expected, tolerance, name):
    """An array with its recorded norm and values; the tolerance is that of one element."""
    norm, *values = REFERENCE["summary"](array, len(expected) - 1)
    np.testing.assert_allclose(values, expected[1:], rtol=0, atol=tolerance, err_msg=name)
    assert norm == pytest.approx(expected[0], abs=tolerance * np.sqrt(array.size)), name


def test_every_tensor_is_taken(recorded, model):
    assert model.description.class_name == recorded["config"]["architectures"][0]
    assert model.report.complete
    assert set(model.report.taken) == set(recorded["tensors"])


def test_outputs(recorded, model, inputs):
    apply = functools.partial(named_outputs, model.module)
    outputs = jax.jit(lambda params: apply(params, inputs, recorded["outputs"]))(model.params)
    assert set(outputs) == set(recorded["outputs"])
    for name, expected in recorded["outputs"].items():
        compare(outputs[name], expected, 2e-5 if "hidden_state" in name else 1e-4, name)


# Of all heads, in the fast tier, the two that are learnt together.
GRADIENTS = [
    pytest.param(name, marks=[pytest.mark.slow] * (name != "pretraining"))
    for name in REFERENCE["CASES"]
]


@pytest.mark.parametrize("recorded", GRADIENTS, indirect=True)
def test_gradients(recorded, model, inputs):
    gradients = gradients_of(model, inputs, recorded["outputs"])
    for name, expected in recorded["gradients"].items():
        gradient = gradients[HUGGINGFACE.canonical(name)]
        # No gradient reaches a bias of keys but by rounding: it shifts all scores of a row alike.
        scale = gradients[HUGGINGFACE.canonical(name.replace("key.bias", "query.bias"))]
        compare(gradient, expected, 1e-4 * np.abs(scale).max(), name)
