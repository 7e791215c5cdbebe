"""LSTM and GRU as families: files, generation, classifiers that start from a language model."""

import json
import os
import sys

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
from bert_jax.models.transformer_layer import RequestedOutputs
from bert_jax.planning.roofline import program_flops, real_flops
from bert_jax.tasks.classification.language_model import check_language_model
from bert_jax.tokenization.training import train_gpt2
from tests.random_params import random_params
from tests.runs import completed

SIZES = {"hidden_size": 8, "num_hidden_layers": 2, "max_position_embeddings": 24}
TEXTS = ["the cat sat on a mat", "a dog ran to the sea", "it was long"] * 4


def save(directory, kind, head, **fields):
    tokenizer = train_gpt2(TEXTS, vocab_size=290)
    family = find_family(kind)
    config = family.new_config("tiny", vocab_size=tokenizer.vocab_size, **SIZES | fields)
    description = ModelDescription(config, head, family=family)
    params = random_params(description.make_module(Execution()), scale=0.5, all_differ=True)
    model_directory.save(directory, description, params, tokenizer)
    return directory


@pytest.mark.parametrize(
    ("kind", "head", "fields"),
    [
        ("lstm", "causal_lm", {"embedding_size": 6}),
        ("gru", "tagging", {"bidirectional": True, "recurrent_dropout": 0.3}),
    ],
)
def test_files_are_saved_as_they_were_loaded(kind, head, fields, tmp_path):
    source = save(tmp_path / "model", kind, head, **fields)
    model = bert_jax.load(source)
    model.save(tmp_path / "again")
    for name in ("model.safetensors", "config.json"):
        assert (tmp_path / "again" / name).read_bytes() == (source / name).read_bytes(), name
    written = json.loads((source / "config.json").read_text())
    assert {key: written[key] for key in fields} == fields
    assert "num_attention_heads" not in written
    with pytest.raises(UserError, match=f"{kind} layers have no attention weights"):
        model.attentions(["the cat"])


def test_it_writes_the_most_probable_tokens(tmp_path):
    """With its state as by the whole text at each step; a longer text than the files allow."""
    model = bert_jax.load(save(tmp_path / "model", "lstm", "causal_lm"))
    (generation,) = model.generate(["the cat"], max_new_tokens=3)[0]
    (encoding,) = model.tokenizer.encode_batch(["the cat"])
    ids = list(encoding.ids)
    for token in generation.token_ids:
        logits = np.array(model.module.apply({"params": model.params}, np.array([ids])))
        assert logits[0, -1, : model.tokenizer.vocab_size].argmax() == token
        ids.append(token)
    assert len(generation.token_ids) == 3
    with pytest.raises(OptionError, match="max_new_tokens is 30"):
        model.generate(["the cat"], max_new_tokens=30)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_a_classifier_reads_the_last_state_or_the_mean_of_both_directions(bidirectional):
    ids, mask = np.int32([[5, 7, 9], [8, 6, 0]]), np.int32([[1, 1, 1], [1, 1, 0]])
    fields = {"vocab_size": 30, "bidirectional": bidirectional}
    module = find_head("classification").make(
        find_family("gru").new_config("tiny", **SIZES, **fields)
    )
    params = random_params(module, scale=0.5, all_differ=True)
    requested = RequestedOutputs()
    logits, encoded = jax.jit(
        lambda: module.apply(
            {"params": params}, ids, attention_mask=mask, encoder_outputs=requested
        )
    )()
    hidden, kernel = np.array(encoded.last_hidden_state), params["classifier"]["kernel"]
    if bidirectional:
        means = np.stack([hidden[0].mean(axis=0), hidden[1, :2].mean(axis=0)])
        expected = means @ kernel + params["classifier"]["bias"]
    else:
        expected = hidden[[0, 1], [2, 1]] @ kernel
        assert list(params["classifier"]) == ["kernel"]
    np.testing.assert_allclose(logits, expected, atol=1e-5)


@pytest.mark.parametrize("head", ["causal_lm", "text_to_text"])
def test_a_classifier_takes_the_encoder_of_a_model_that_writes(head, tmp_path):
    """Of a language model, and of an autoencoder, whose decoder it leaves out."""
    source = save(tmp_path / "model", "gru", head)
    described = model_directory.load_description(source)
    module = find_head("classification").make(described.config)
    params, report = model_directory.load_params(source, described, module)
    assert report.new == ("classifier/kernel",)
    left_out = [name.split(".")[0] for name in report.unexpected_keys]
    assert left_out == (["decoder"] * 8 if head == "text_to_text" else [])
    stored = bert_jax.load(source).params["bert"]
    jax.tree.map(np.testing.assert_array_equal, params["bert"], stored)


@pytest.mark.slow
def test_a_classifier_starts_from_a_language_model(tmp_path, capsys):
    """It needs no argument beside the directory, and learns which texts are about an animal."""
    source = save(tmp_path / "model", "lstm", "causal_lm", hidden_size=32, embedding_size=None)
    pairs = [(f"a {noun} ran to the sea", "animal" if noun in ("cat", "dog") else "thing")
             for noun in ("cat", "dog", "mat", "log")] * 20  # fmt: skip
    records = [{"text": text, "label": label} for text, label in pairs]
    run = bert_jax.train(
        "classification", source, records, workdir=tmp_path / "run",
        **{"optimizer.learning_rate": 1e-2, "train.epochs": 5.0, "data.length": 16},
    )  # fmt: skip
    del run
    assert "tensors loaded; new and untrained: classifier/kernel" in capsys.readouterr().err
    model = bert_jax.load(tmp_path / "run")
    labels = [answer.label for answer in model.classify(["a dog sat", "a mat sat"])]
    assert labels == ["animal", "thing"]


@pytest.mark.parametrize("kind", ["lstm", "gru"])
@pytest.mark.parametrize("fields", [{"bidirectional": True}, {}])
def test_flops_are_those_of_the_program(kind, fields):
    config = find_family(kind).new_config("tiny", vocab_size=30, **SIZES, **fields)
    module = find_head("tagging").make(config)
    ids = jax.ShapeDtypeStruct((1, 16), jnp.int32)
    program = jax.make_jaxpr(lambda params, ids: module.apply({"params": params}, ids))(
        abstract_params(module), ids
    )
    of_head = 2 * 16 * 8 * 2
    assert 3 * (program_flops(program.jaxpr) - of_head) == real_flops(config, np.array([16]), 0)
    if not fields:
        gates = {"lstm": 4, "gru": 3}[kind]
        assert real_flops(config, np.array([16]), 0) == 3 * 2 * 16 * 2 * gates * 8 * (8 + 8)


def test_next_tokens_of_a_classifier_need_a_table_as_wide_as_the_states():
    config = find_family("lstm").new_config("tiny", vocab_size=30, embedding_size=4, **SIZES)
    with pytest.raises(OptionError, match="embeddings as wide as the hidden states"):
        check_language_model(config, 0.5)


ON_A_MESH = """
import jax
import numpy as np
import optax
from bert_jax.families.family import find_family
from bert_jax.models.execution import Execution
from bert_jax.models.head import find_head
from bert_jax.models.parameter_sharding import gathered, state_shardings
from bert_jax.sharding.mesh import MeshShape, make_mesh
from bert_jax.sharding.rules import on_mesh
from tests.random_params import random_params

ids = np.random.default_rng(0).integers(2, 40, (4, 12)).astype(np.int32)
fields = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2}
for kind, both in (("lstm", False), ("gru", True)):
    config = find_family(kind).new_config("tiny", **fields, bidirectional=both, num_labels=40)
    head = find_head("tagging" if both else "causal_lm")
    params = random_params(head.make(config))
    results = []
    for shape, devices, remat in (
        (MeshShape(data=1), 1, "none"),
        (MeshShape(data=1, fsdp=2, tensor=2), 4, "full"),
    ):
        module = head.make(config, Execution(remat=remat))
        mesh = make_mesh(shape, jax.devices()[:devices])
        sharded = jax.device_put(params, state_shardings(mesh, params))

        def loss(params):
            logits = module.apply({"params": gathered(mesh, params)}, ids)
            return optax.softmax_cross_entropy_with_integer_labels(logits, ids).mean()

        with on_mesh(mesh):
            results.append(jax.device_get(jax.jit(jax.value_and_grad(loss))(sharded)))
    (one, expected), (other, gradients) = results
    np.testing.assert_allclose(other, one, rtol=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), gradients, expected)
"""


@pytest.mark.slow
def test_the_same_loss_and_gradients_on_a_mesh_and_recomputed():
    environment = os.environ | {"JAX_NUM_CPU_DEVICES": "4"}
    done = completed([sys.executable, "-c", ON_A_MESH], env=environment)
    assert done.returncode == 0, done.stderr
