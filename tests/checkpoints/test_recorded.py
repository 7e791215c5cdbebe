"""Every model against numbers of Hugging Face's models, recorded by `record_reference.py`."""

import functools
import json
import runpy
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from safetensors.numpy import save_file

from bert_jax.checkpoints.model_directory import load_description, load_params
from bert_jax.checkpoints.parameters import to_tensors
from bert_jax.models.encoder import Encoder, RequestedOutputs
from bert_jax.models.execution import Execution

REFERENCE = runpy.run_path(str(Path(__file__).with_name("record_reference.py")))


class Loaded(NamedTuple):
    """A model without a tokenizer."""

    description: Any
    module: Any
    params: Any
    report: Any


def test_every_case_is_recorded():
    assert {path.stem for path in REFERENCE["RECORDED"].iterdir()} == set(REFERENCE["CASES"])


@pytest.fixture(scope="module", params=REFERENCE["CASES"])
def recorded(request):
    path = REFERENCE["RECORDED"] / f"{request.param}.json"
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def model(recorded, tmp_path_factory):
    """The recorded model, from a model directory with the tensors that transformers saves."""
    directory = tmp_path_factory.mktemp("model")
    (directory / "config.json").write_text(json.dumps(recorded["config"]))
    tensors = {
        name: REFERENCE["random_tensor"](name, shape) for name, shape in recorded["tensors"].items()
    }
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    description = load_description(directory)
    module = description.make_module(Execution())
    return Loaded(description, module, *load_params(directory, description, module))


@pytest.fixture(scope="module")
def inputs(recorded):
    return {name: np.array(value) for name, value in recorded["inputs"].items()}


def gradients_of(model, inputs, names):
    """Gradients of the weighted sum of the outputs, under the names of transformers."""

    def score(params):
        outputs = named_outputs(model.module, params, inputs, names)
        return sum(
            (value * REFERENCE["score_weights"](name, value.shape, inputs["attention_mask"])).sum()
            for name, value in outputs.items()
            if not name.startswith("hidden_states")
        )

    names_of_files = model.description.family.huggingface
    return to_tensors(jax.jit(jax.grad(score))(model.params), names_of_files, model.module)


def named_outputs(module, params, inputs, names):
    """The outputs of a model, under the names of transformers."""
    if not isinstance(module, Encoder):
        output = module.apply({"params": params}, **inputs)
        return dict(zip(names, output if isinstance(output, tuple) else (output,), strict=True))
    requested = RequestedOutputs(hidden_states=True)
    output = module.apply({"params": params}, **inputs, encoder_outputs=requested)._asdict()
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


@pytest.mark.slow
@pytest.mark.parametrize("recorded", ["pretraining"], indirect=True)
def test_gradients(recorded, model, inputs):
    gradients = gradients_of(model, inputs, recorded["outputs"])
    canonical = model.description.family.huggingface.canonical
    for name, expected in recorded["gradients"].items():
        gradient = gradients[canonical(name)]
        # The gradient of a key's bias is rounding: it shifts all scores of a row alike.
        scale = gradients[canonical(name.replace("key.bias", "query.bias"))]
        compare(gradient, expected, 1e-4 * np.abs(scale).max(), name)
