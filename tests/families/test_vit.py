"""Models of images: their files in and out, verbs for texts, precision, meshes."""

import dataclasses
import json
import os
import subprocess
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bert_jax
from bert_jax.checkpoints import model_directory
from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.errors import OptionError, UserError
from bert_jax.families.family import find_family
from bert_jax.models.encoder import abstract_params
from bert_jax.models.execution import Execution
from bert_jax.models.head import find_head
from bert_jax.models.patch_embeddings import cubic_interpolation
from bert_jax.tasks.base.model_init import ModelOptions, initial_params, model_init
from bert_jax.tokenization.image_processor import ImageProcessor, read_image_processor
from bert_jax.training.layer_rates import rate_factors
from bert_jax.training.optimizer import decay_mask
from tests.random_params import random_params

NAMES = ("vit", "deit")
SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "image_size": (9, 13),
    "patch_size": (4, 3),
    "num_labels": 3,
}
PROCESSOR = {
    "image_processor_type": "ViTImageProcessor",
    "size": {"height": 9, "width": 13},
    "image_mean": [0.5, 0.25, 0.125],
    "own": None,
}


def config_of(name, **fields):
    return find_family(name).new_config("tiny", **SIZES | fields)


def saved(directory, name="vit", head="image_classification", processor=PROCESSOR, **fields):
    """The directory of a random model."""
    description = ModelDescription(
        config_of(name, **fields), head, ("cat", "dog", "owl"), family=find_family(name)
    )
    params = random_params(description.make_module(Execution()))
    model_directory.save(directory, description, params, ImageProcessor(processor))
    return directory


def images(count=2, height=9, width=13):
    generator = np.random.default_rng(0)
    return generator.normal(size=(count, height, width, 3)).astype(np.float32)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return bert_jax.load(saved(tmp_path_factory.mktemp("vit") / "model"))


def test_a_directory_comes_back_with_its_image_processor(model, tmp_path):
    assert model.description.class_name == "ViTForImageClassification"
    assert model.description.labels == ("cat", "dog", "owl")
    assert model.report.complete
    assert model.tokenizer.fields == PROCESSOR
    model.save(tmp_path / "again")
    first = model.origin.directory
    names = {path.name for path in first.iterdir()}
    assert {"config.json", "model.safetensors", "preprocessor_config.json"} <= names
    for name in names - {"bert_jax.json"}:
        assert (tmp_path / "again" / name).read_bytes() == (first / name).read_bytes(), name
    fields = json.loads((first / "config.json").read_text())
    assert fields["image_size"] == [9, 13]
    assert not {"vocab_size", "max_position_embeddings", "pooler_output_size"} & fields.keys()
    assert model.tokenizer.fingerprint() == read_image_processor(first).fingerprint()
    assert model.tokenizer.fingerprint() != ImageProcessor({}).fingerprint()


def test_a_directory_without_an_image_processor_gets_none(tmp_path):
    saved(tmp_path / "model", processor={})
    loaded = bert_jax.load(tmp_path / "model")
    assert loaded.tokenizer.fields == {}
    assert not (tmp_path / "model" / "preprocessor_config.json").exists()
    (tmp_path / "model" / "preprocessor_config.json").write_text("[]")
    with pytest.raises(UserError, match=r"preprocessor_config\.json is not a JSON object"):
        bert_jax.load(tmp_path / "model")


def test_a_file_without_a_class_shows_its_head(tmp_path):
    for head in find_family("deit").class_names:
        directory = saved(tmp_path / head, "deit", head)
        fields = json.loads((directory / "config.json").read_text())
        del fields["architectures"]
        (directory / "bert_jax.json").unlink()
        (directory / "config.json").write_text(json.dumps(fields))
        assert model_directory.load_description(directory).head == head


@pytest.mark.parametrize(
    "verb",
    [
        lambda model: model.embed(["a"]),
        lambda model: model.hidden_states(["a"]),
        lambda model: model.attentions(["a"]),
        lambda model: model.inputs(["a"]),
        lambda model: model.search("a", ["b"]),
        lambda model: model.add_words(["a"]),
        lambda model: model.to_family("longformer"),
        lambda model: model.tokenizer.encode_batch(["a"]),
        lambda model: model.tokenizer.decode([1]),
    ],
)
def test_verbs_for_texts_are_refused_in_one_line(model, verb):
    with pytest.raises(UserError) as error:
        verb(model)
    assert str(error.value) == (
        "the model reads images and has no tokenizer; give images, or a model that reads text"
    )


def test_positions_for_longer_texts_are_refused(model):
    with pytest.raises(UserError, match="interpolated for images of .* set model.image_size$"):
        model.extend_positions(64)


def test_a_server_and_tasks_for_texts_refuse_it(model, refused, tmp_path):
    directory = model.origin.directory
    assert refused("serve", "--model", directory, "--port", "0").endswith(
        ": a ViTForImageClassification reads images, and requests have texts; give a model that "
        "reads text\n"
    )
    with pytest.raises(UserError, match="does not classify texts"):
        model.classify(["a"])
    (tmp_path / "texts.txt").write_text("a text\n")
    message = refused(
        *("predict", "--model", directory, "--task", "embed"),
        *("--input", tmp_path / "texts.txt", "--output", tmp_path / "vectors.jsonl"),
    )
    assert "the model reads images and has no tokenizer" in message


def test_the_positions_of_patches_are_drawn(model, tmp_path):
    arguments = ("draw", "positions", "--model", model.origin.directory)
    assert bert_jax.cli.main([*map(str, arguments), "--output", str(tmp_path / "p.html")]) == 0
    assert "9 learned positions of width 16" in (tmp_path / "p.html").read_text()


def test_distillation_logits_and_their_mean():
    module = find_head("image_classification_with_teacher").make(config_of("deit"))
    params = random_params(module)
    outputs = module.apply({"params": params}, pixel_values=images())
    assert outputs.logits.shape == outputs.cls_logits.shape == (2, 3)
    mean = (outputs.cls_logits + outputs.distillation_logits) / 2
    np.testing.assert_allclose(outputs.logits, mean, rtol=1e-6)
    assert np.abs(outputs.cls_logits - outputs.distillation_logits).max() > 1e-2


def test_a_training_begins_with_interpolated_positions(model):
    """Its model computes for larger images what the old one does."""
    directory, size = model.origin.directory, (17, 13)
    options = ModelOptions(fields={"image_size": size})
    init = model_init(options, Execution(), init_from=str(directory))
    description = init.describe(init.tokenizer, "image_classification", num_labels=3)
    assert description.config.images.pixels == size
    module = description.make_module(Execution())
    task = types.SimpleNamespace(
        module=module,
        description=dataclasses.replace(description, labels=model.description.labels),
        load_params=model_directory.load_params,
    )
    params = initial_params(init, task, model.mesh, seed=0)
    assert params["bert"]["embeddings"]["position_embeddings"].shape == (1, 1 + 4 * 4, 16)
    pixels = images(height=17)
    actual, expected = (
        each.apply({"params": values}, pixel_values=pixels)
        for each, values in ((module, params), (model.module, model.params))
    )
    np.testing.assert_allclose(actual, expected, atol=1e-6)
    for field, value in (("patch_size", 3), ("num_channels", 1), ("qkv_bias", False)):
        other = model_init(
            ModelOptions(fields={field: value}), Execution(), init_from=str(directory)
        )
        with pytest.raises(OptionError, match=rf"model\.{field} is {value}; init_from has a model"):
            other.describe(other.tokenizer, "image_classification")


def test_what_decays_and_what_learns_as_embeddings():
    module = find_head("image_classification_with_teacher").make(config_of("deit"))
    params = abstract_params(module)
    decays = decay_mask(params)
    assert decays["bert"]["embeddings"] == {
        "patches": {"kernel": True, "bias": False},
        "cls_token": False,
        "distillation_token": False,
        "position_embeddings": False,
    }
    assert decays["cls_classifier"] == {"kernel": True, "bias": False}
    factors = rate_factors(params, layer_decay=0.5, head_factor=3.0, frozen_layers=1)
    assert set(map(float, jax.tree.leaves(factors["bert"]["embeddings"]))) == {0}
    assert factors["bert"]["encoder"]["layers"]["output"]["bias"].tolist() == [[0], [0.5]]
    assert set(map(float, jax.tree.leaves(factors["distillation_classifier"]))) == {3}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_bfloat16_is_near_float32(name):
    logits = []
    for dtype in ("float32", "bfloat16"):
        module = find_head("image_classification").make(config_of(name), Execution(dtype=dtype))
        params = random_params(module, scale=0.1)
        logits.append(jax.jit(module.apply)({"params": params}, pixel_values=images()))
    exact, rounded = logits
    assert rounded.dtype == jnp.float32
    assert 0 < np.abs(rounded - exact).max() < 0.05 * np.abs(exact).max()


ON_A_MESH = """
import jax
import numpy as np
import optax
from bert_jax.models.head import find_head
from bert_jax.models.parameter_sharding import gathered, state_shardings
from bert_jax.sharding.mesh import MeshShape, make_mesh
from bert_jax.sharding.rules import on_mesh
from tests.families.test_vit import NAMES, config_of, images
from tests.random_params import random_params

assert len(jax.devices()) == 8
for name in NAMES:
    module = find_head("image_classification").make(config_of(name))
    params = random_params(module)
    results = []
    for shape, devices in ((MeshShape(data=1), 1), (MeshShape(data=2, fsdp=2, tensor=2), 8)):
        mesh = make_mesh(shape, jax.devices()[:devices])
        sharded = jax.device_put(params, state_shardings(mesh, params))

        def loss(params):
            logits = module.apply(
                {"params": gathered(mesh, params)}, pixel_values=images(4)
            )
            labels = np.array([0, 1, 2, 1])
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

        with on_mesh(mesh):
            results.append(jax.device_get(jax.jit(jax.value_and_grad(loss))(sharded)))
    (one, expected), (other, gradients) = results
    np.testing.assert_allclose(other, one, rtol=1e-5)
    scale = max(np.abs(leaf).max() for leaf in jax.tree.leaves(expected))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5 * scale), gradients, expected
    )
    print(name)
"""


@pytest.mark.slow
def test_the_same_loss_and_gradients_on_a_mesh():
    done = subprocess.run(
        [sys.executable, "-c", ON_A_MESH],
        env=os.environ | {"JAX_NUM_CPU_DEVICES": "8"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == list(NAMES)


@pytest.mark.slow
def test_interpolation_is_that_of_pytorch():
    """PyTorch computes the weights in float32."""
    torch = pytest.importorskip("torch")
    generator = np.random.default_rng(0)
    for old, new in [(3, 7), (7, 3), (14, 24), (24, 14), (5, 5), (1, 4), (4, 1), (2, 33)]:
        values = generator.normal(size=(old, old)).astype(np.float32)
        expected = torch.nn.functional.interpolate(
            torch.from_numpy(values)[None, None], size=(new, old), mode="bicubic"
        )
        np.testing.assert_allclose(
            cubic_interpolation(old, new) @ values, expected[0, 0], rtol=0, atol=1e-5
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    "class_name",
    [
        "ViTModel",
        "ViTForImageClassification",
        "DeiTModel",
        "DeiTForImageClassification",
        "DeiTForImageClassificationWithTeacher",
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_files_of_transformers_come_back_byte_for_byte(class_name, dtype, tmp_path):
    torch, transformers = map(pytest.importorskip, ("torch", "transformers"))
    model_class = getattr(transformers, class_name)
    fields = SIZES | {"image_size": [9, 13], "patch_size": [4, 3], "qkv_bias": False}
    torch.manual_seed(0)
    labels = {"cat": 0, "dog": 1, "owl": 2}
    names = {number: label for label, number in labels.items()}
    config = model_class.config_class(**fields, id2label=names, label2id=labels)
    model = model_class(config)
    model.to(getattr(torch, dtype)).save_pretrained(tmp_path / "model")
    size = {"height": 9, "width": 13}
    transformers.ViTImageProcessor(size=size).save_pretrained(tmp_path / "model")
    bert_jax.load(tmp_path / "model").save(tmp_path / "again")
    for name in ("model.safetensors", "preprocessor_config.json"):
        contents = [(tmp_path / folder / name).read_bytes() for folder in ("model", "again")]
        assert contents[0] == contents[1], name
    first, again = (
        json.loads((tmp_path / folder / "config.json").read_text()) for folder in ("model", "again")
    )
    assert again == first
