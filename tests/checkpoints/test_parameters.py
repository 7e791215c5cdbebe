"""Model directories: parameters come back to the bit; new and damaged ones are named."""

import dataclasses
import json
import os
import subprocess
import sys
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from flax.traverse_util import flatten_dict
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import bert_jax
from bert_jax.checkpoints import model_directory
from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.checkpoints.model_directory import load_description, load_params
from bert_jax.checkpoints.parameters import locate
from bert_jax.errors import UserError
from bert_jax.families import bert
from bert_jax.files.manifest import MANIFEST
from bert_jax.models.execution import Execution
from bert_jax.tokenization import load_tokenizer
from tests.random_params import random_params


def load(path, head="", **options):
    description = load_description(path, head)
    return load_params(path, description, description.make_module(Execution()), **options)


def flat(params):
    return {name: np.asarray(value) for name, value in flatten_dict(params, sep="/").items()}


def check_same(params, expected):
    """Compares parameters, or tensors, and their dtypes to the bit."""
    bits, expected_bits = (
        {name: (value.dtype, value.tobytes()) for name, value in flat(tree).items()}
        for tree in (params, expected)
    )
    assert bits == expected_bits


@pytest.fixture
def edit(model_path):
    """Rewrites the tensors of the model directory: from a dict of them to another."""
    path = model_path / "model.safetensors"
    (model_path / MANIFEST).unlink()

    def rewrite(change) -> None:
        save_file(change(load_file(path)), path, metadata={"format": "pt"})

    return rewrite


def test_the_files_are_those_of_hugging_face(description, model_params, tokenizer, tmp_path):
    before = os.umask(0o026)
    try:
        model_directory.save(tmp_path / "model", description, model_params, tokenizer)
    finally:
        os.umask(before)
    files = list((tmp_path / "model").iterdir())
    names = {"config.json", "model.safetensors", "tokenizer.json", "vocab.txt"}
    assert names <= {path.name for path in files}
    assert {path.stat().st_mode & 0o777 for path in files} == {0o640}  # as the umask says
    fields = json.loads((tmp_path / "model" / "config.json").read_text())
    expected = {"architectures": ["BertForPreTraining"], "model_type": "bert"}
    assert {name: fields[name] for name in expected} == expected
    assert fields["layer_norm_eps"] == 1e-9
    assert load_tokenizer(tmp_path / "model").fingerprint() == tokenizer.fingerprint()
    with safe_open(tmp_path / "model" / "model.safetensors", framework="numpy") as file:
        assert file.metadata() == {"format": "pt"}


def test_a_classifier_on_a_pretrained_encoder(model_path, model_params):
    params, report = load(model_path, "classification")
    assert report.new == ("classifier/bias", "classifier/kernel")
    assert report.unexpected_keys[::5] == ("cls.predictions.bias", "cls.seq_relationship.bias")
    assert len(report.taken) == 5 + 3 * 16 + 2  # embeddings, three layers, pooler
    assert not report.complete
    assert str(report).startswith("55 tensors loaded; new and untrained: classifier/bias, class")
    check_same(params["bert"], model_params["bert"])


def test_a_padded_vocabulary_is_filled_up_with_zeros(model_path, model_params):
    execution = Execution(pad_vocab_to_multiple_of=64)
    described = load_description(model_path)
    params, report = load_params(model_path, described, described.make_module(execution))
    assert report.complete
    result, expected = flat(params), flat(model_params)
    padded = {name for name in expected if result[name].shape != expected[name].shape}
    assert padded == {"bert/embeddings/word_embeddings/embedding", "mlm_head/bias"}
    for name, value in expected.items():
        words = len(value)
        assert result[name][:words].tobytes() == value.tobytes(), name
        assert len(result[name]) == (
            execution.padded_vocab_size(words) if name in padded else words
        )
        assert not result[name][words:].any()


@pytest.mark.slow
def test_new_parameters_are_drawn_from_the_seed(model_path):
    def kernel(seed):
        params, _ = load(model_path, "tagging", seed=seed)
        assert not np.asarray(params["classifier"]["bias"]).any()
        return np.asarray(params["classifier"]["kernel"])

    assert kernel(1).tobytes() == kernel(1).tobytes()
    assert kernel(1).tobytes() != kernel(2).tobytes()
    assert 0 < np.abs(kernel(1)).max() <= 0.04 / 0.87  # truncated at 2 sigma of 0.02
    assert kernel(1).shape == (16, 2)


def test_the_bare_encoder_of_a_model_with_heads(model_path, model_params):
    params, report = load(model_path, "encoder")
    assert report.new == ()
    assert len(report.unexpected_keys) == 7
    check_same(params, model_params["bert"])


@pytest.mark.parametrize(
    "spelling", ["prefix", "no prefix", "gamma and beta", "all", "bert.bert.", "decoder alone"]
)
def test_older_spellings(model_path, edit, model_params, spelling):
    def respell(tensors):
        def old(name):
            if spelling in ("no prefix", "all"):
                name = name.removeprefix("bert.")
            if spelling in ("gamma and beta", "all") and "LayerNorm" in name:
                name = name.replace("weight", "gamma").replace("bias", "beta")
            if spelling == "decoder alone" and "word_embeddings" in name:
                name = "cls.predictions.decoder.weight"
            return f"bert.{name}" if spelling == "bert.bert." else name

        return {old(name): tensor for name, tensor in tensors.items()}

    edit(respell)
    params, report = load(model_path)
    assert report.complete
    check_same(params, model_params)


def change_config(path, **fields):
    """Rewrites `config.json`; a field that is None is removed."""
    file = path / "config.json"
    fields = {**json.loads(file.read_text()), **fields}
    file.write_text(json.dumps({key: value for key, value in fields.items() if value is not None}))


def test_an_untied_decoder_does_not_replace_the_word_embeddings(model_path, edit):
    change_config(model_path, tie_word_embeddings=False)
    old, new = "bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"
    edit(lambda tensors: {new if n == old else n: t for n, t in tensors.items()})
    with pytest.raises(UserError, match="has no tensor bert.embeddings.word_embeddings.weight"):
        load(model_path)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.int8])
def test_a_head_that_does_not_fit_leaves_the_encoder(model_path, edit, dtype, capsys):
    """A classifier with other outputs than labels, or quantised."""

    def add(tensors):
        kernel = np.zeros((3 if dtype == np.float32 else 2, 16), dtype)
        kept = {name: each for name, each in tensors.items() if name.startswith("bert.")}
        return kept | {"classifier.weight": kernel, "classifier.bias": np.zeros(2, np.float32)}

    edit(add)
    change_config(model_path, architectures=["BertForSequenceClassification"])
    model = bert_jax.load(model_path)
    assert "classifier.weight has" in capsys.readouterr().err
    assert model.embed(["the cat"]).shape == (1, 16)
    for refused in (
        lambda: model.classify(["the cat"]),
        lambda: bert_jax.load(model_path, task="classification"),
    ):
        with pytest.raises(UserError, match="tensor classifier.weight has"):
            refused()


def test_copies_of_a_tied_decoder_are_expected(model_path, edit):
    words, bias = "bert.embeddings.word_embeddings.weight", "cls.predictions.bias"
    copies = {"cls.predictions.decoder.weight": words, "cls.predictions.decoder.bias": bias}
    edit(lambda tensors: tensors | {name: tensors[source] for name, source in copies.items()})
    assert load_description(model_path).config.tie_word_embeddings
    _, report = load(model_path)
    assert report.complete
    assert "cls.predictions.decoder.bias" in report.taken


def test_the_second_name_of_a_decoders_bias_has_precedence(model_config):
    names = ("cls.predictions.bias", "cls.predictions.decoder.bias")
    for order in (names, names[::-1]):
        file = SimpleNamespace(tensors=dict.fromkeys(order))
        assert locate(file, bert.FAMILY.huggingface, model_config) == {names[0]: names[1]}


def test_another_decoder_is_not_tied(model_path, edit, tokenizer, tmp_path):
    """As in transformers 5, which computes with the decoder and with its bias."""
    generator = np.random.default_rng(0)
    decoder = generator.normal(size=(40, 16)).astype(np.float32)
    bias = generator.normal(size=40).astype(np.float32)
    untied = {"cls.predictions.decoder.weight": decoder, "cls.predictions.decoder.bias": bias}
    edit(lambda tensors: tensors | untied)
    description = load_description(model_path)
    assert not description.config.tie_word_embeddings
    params, report = load(model_path)
    assert report.complete
    assert np.asarray(params["mlm_head"]["decoder"]).tobytes() == decoder.tobytes()
    assert np.asarray(params["mlm_head"]["bias"]).tobytes() == bias.tobytes()

    again = tmp_path / "again"
    model_directory.save(again, description, params, tokenizer)
    tensors = load_file(again / "model.safetensors")
    check_same({name: tensors[name] for name in untied}, untied)
    assert json.loads((again / "config.json").read_text())["tie_word_embeddings"] is False


@pytest.mark.parametrize(
    ("kept", "head"),
    [
        ("cls.", "pretraining"),
        ("cls.predictions.", "masked_lm"),
        ("cls.seq_relationship.", "next_sentence"),
        ("nothing", "encoder"),
    ],
)
def test_tensors_decide_the_head_without_a_class(model_path, edit, kept, head):
    change_config(model_path, architectures=None)
    edit(lambda tensors: {n: t for n, t in tensors.items() if n.startswith(("bert.", kept))})
    assert load_description(model_path).head == head


def test_an_encoder_without_pooler(model_path, edit, tokenizer, tmp_path):
    edit(lambda tensors: {n: t for n, t in tensors.items() if "pooler" not in n})
    _, report = load(model_path, "next_sentence")
    assert report.new == ("bert/pooler/dense/bias", "bert/pooler/dense/kernel")
    description = load_description(model_path, "encoder")
    assert not description.add_pooling_layer
    params, report = load(model_path, "encoder")
    assert report.new == ()
    assert "pooler" not in params
    model_directory.save(tmp_path / "bare", description, params, tokenizer)
    names = load_file(tmp_path / "bare" / "model.safetensors")
    assert "embeddings.word_embeddings.weight" in names
    assert not any(name.startswith(("bert.", "pooler.")) for name in names)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_comes_back_to_the_bit(
    description, model_params, tokenizer, tmp_path, dtype
):
    half = dataclasses.replace(description, dtype=dtype)
    written, rewritten = tmp_path / "one", tmp_path / "other"
    model_directory.save(written, half, model_params, tokenizer)
    result = load_description(written)
    assert result == half
    params, _ = load(written)
    assert all(leaf.dtype == np.float32 for leaf in jax.tree.leaves(params))
    model_directory.save(rewritten, result, params, tokenizer)
    assert {path.name for path in written.iterdir()} == {path.name for path in rewritten.iterdir()}
    for path in written.iterdir():
        assert (rewritten / path.name).read_bytes() == path.read_bytes()
    with safe_open(written / "model.safetensors", framework="numpy") as file:
        dtypes = {file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118
    assert dtypes == {{"float16": "F16", "bfloat16": "BF16"}[dtype]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensor: tensor.astype(np.int8), " has dtype int8, not one of float16"),
        (lambda tensor: tensor.T.copy(), r" has shape \(32, 16\), the model needs \(16, 32\)"),
        (lambda tensor: None, "model.safetensors has no tensor bert.encoder.layer.0.output.dense"),
    ],
)
def test_a_tensor_of_the_encoder_that_does_not_fit(model_path, edit, change, message):
    def changed(tensors):
        name = "bert.encoder.layer.0.output.dense.weight"
        return {n: t for n, t in {**tensors, name: change(tensors[name])}.items() if t is not None}

    edit(changed)
    with pytest.raises(UserError, match=message):
        load(model_path)


def test_one_output_makes_a_multiple_choice(model_path, tokenizer, tmp_path):
    params, _ = load(model_path, "multiple_choice")
    description = load_description(model_path, "multiple_choice")
    model_directory.save(tmp_path / "choice", description, params, tokenizer)
    (tmp_path / "choice" / MANIFEST).unlink()
    change_config(tmp_path / "choice", architectures=None)
    assert load_description(tmp_path / "choice").head == "multiple_choice"


@pytest.mark.parametrize("head", bert.FAMILY.class_names)
def test_every_architecture_comes_back_to_the_bit(head, model_config, tokenizer, tmp_path):
    config = dataclasses.replace(model_config, num_labels=3)
    description = ModelDescription(config, head, labels=("x", "y", "z"))
    params = random_params(description.make_module(Execution()), all_differ=True)
    model_directory.save(tmp_path / "model", description, params, tokenizer)
    assert load_description(tmp_path / "model") == description
    result, report = load(tmp_path / "model")
    assert report.complete
    check_same(result, params)


EIGHT_DEVICES = """
import sys
from pathlib import Path
import jax
import numpy as np
import bert_jax
from bert_jax.sharding.mesh import MeshShape, make_mesh

mesh = make_mesh(MeshShape(data=2, fsdp=2, tensor=2))
model = bert_jax.load(sys.argv[1], task="classification", mesh=mesh)
kernel = model.params["bert"]["encoder"]["layers"]["intermediate"]["kernel"]
print(len(kernel.sharding.device_set), kernel.addressable_shards[0].data.shape)
print(len(model.params["classifier"]["kernel"].sharding.device_set))
alone = bert_jax.load(sys.argv[1], task="classification")
pairs = zip(jax.tree.leaves(model.params), jax.tree.leaves(alone.params), strict=True)
print(all(np.asarray(one).tobytes() == np.asarray(other).tobytes() for one, other in pairs))
"""


@pytest.mark.slow
def test_parameters_are_laid_out_on_a_mesh(model_path):
    done = subprocess.run(
        [sys.executable, "-c", EIGHT_DEVICES, str(model_path)],
        env=os.environ | {"JAX_NUM_CPU_DEVICES": "8"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # [L 3, D 16, F 32]: D is split over fsdp, F over tensor.
    assert done.stdout.splitlines() == ["8 (3, 8, 16)", "8", "True"]


def test_mixed_precision_comes_back_to_the_bit(model_path, edit, tokenizer, tmp_path):
    """float16 with LayerNorm in float32 is a common form; other tensors do not count."""

    def halve(tensors):
        return {
            name: tensor if "LayerNorm" in name else tensor.astype(np.float16)
            for name, tensor in tensors.items()
        }

    edit(halve)
    params, _ = load(model_path)
    model_directory.save(tmp_path / "again", load_description(model_path), params, tokenizer)
    check_same(
        *(load_file(path / "model.safetensors") for path in (tmp_path / "again", model_path))
    )
    others = {"my_head.steps": np.arange(3), "my_head.scale": np.ones(2, np.float64)}
    edit(lambda tensors: {n: t.astype(np.float16) for n, t in tensors.items()} | others)
    description = load_description(model_path)
    assert (description.dtype, description.mixed_dtypes) == ("float16", {})
