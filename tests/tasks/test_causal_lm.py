"""Training of a causal language model: what an evaluation measures, and what planning reads."""

import dataclasses

import jax
import numpy as np
import optax
import pytest

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.config import default_config, set_key
from bert_jax.data.pretraining.corpus import synthetic_corpus
from bert_jax.errors import OptionError
from bert_jax.experiment import Experiment
from bert_jax.families import gpt2
from bert_jax.inference.evaluation import evaluate
from bert_jax.models.execution import Execution
from bert_jax.sharding.mesh import one_device_mesh
from bert_jax.tasks.base.corpora import Corpora
from bert_jax.tasks.base.train_spec import TaskConfig
from bert_jax.tasks.causal_lm import CausalData, CausalTask
from bert_jax.training_options import OptimizerOptions, TrainOptions
from tests.random_params import random_params

LENGTH = 32
# Of documents that fill two windows.
SIZES = [10, 12, 10, 20, 12]


@pytest.mark.slow
def test_an_evaluation_is_of_every_document_alone(tokenizer, make_split):
    """Documents share windows, and the loss is as if each were a text of its own."""
    generator = np.random.default_rng(0)
    documents = [generator.integers(5, 40, size) for size in SIZES]
    split = make_split([[document.tolist()] for document in documents])
    corpus = dataclasses.replace(
        synthetic_corpus(tokenizer), splits={"train": split, "validation": split}
    )
    config = gpt2.FAMILY.new_config(
        "tiny",
        vocab_size=40,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=LENGTH,
    )
    task = CausalTask(
        TaskConfig(
            CausalData(length=LENGTH, cross_documents=False),
            TrainOptions(global_batch_size=4),
            OptimizerOptions(),
        ),
        Corpora({"": corpus}, tokenizer),
        ModelDescription(config, "causal_lm", family=gpt2.FAMILY),
        Execution(),
    )
    params = random_params(task.module)
    actual = evaluate(task, params, one_device_mesh()).metrics

    rows = np.stack([np.pad(each, (0, LENGTH - len(each))) for each in documents]).astype(np.int32)
    logits = jax.jit(task.module.apply)({"params": params}, rows)
    losses = optax.softmax_cross_entropy_with_integer_labels(logits[:, :-1], rows[:, 1:])
    is_predicted = np.arange(1, LENGTH) < np.array(SIZES)[:, None]
    assert set(actual) == {"loss", "accuracy", "perplexity"}
    assert actual["loss"] == pytest.approx(float(losses[is_predicted].mean()), rel=1e-5)
    assert actual["perplexity"] == pytest.approx(np.exp(actual["loss"]))
    right = (logits[:, :-1].argmax(axis=-1) == rows[:, 1:])[is_predicted]
    assert actual["accuracy"] == pytest.approx(float(right.mean()))

    counts = np.bincount(np.concatenate([document[1:] for document in documents]))
    share = counts.max() / counts.sum()
    assert task.evaluator.baselines() == {"accuracy_most_frequent": pytest.approx(share)}
    assert task.examples_as_text(1).startswith("example 0: ")


def planned(**keys):
    """The task of a config without data."""
    config = default_config("causal_lm")
    for key, value in ({"model__family": "gpt2"} | keys).items():
        set_key(config, key.replace("__", "."), value, where="test")
    return dataclasses.replace(Experiment.from_config(config), with_data=False).task


def test_a_plan_needs_no_corpus():
    task = planned(model__size="tiny", data__length=64, train__global_batch_size=2)
    assert {name: leaf.shape for name, leaf in task.batch_shapes().items()} == {
        "input_ids": (2, 64),
        "labels": (2, 64),
        "weights": (2, 64),
    }
    (model,) = task.computed_models
    assert model.flops_per_token == 2 * 128 * task.description.config.vocab_size


def test_windows_longer_than_the_model_are_refused():
    with pytest.raises(OptionError, match="^data.length is 2048; the model has 1024 positions"):
        planned(data__length=2048)
