"""Packed and unpacked rows give the same losses and gradients; tasks without a corpus."""

import dataclasses

import jax
import numpy as np
import pytest

from bert_jax import model_init
from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.config import default_config, set_key
from bert_jax.data.pretraining.batches import PretrainingBatches, PretrainingOptions
from bert_jax.data.pretraining.corpus import Corpus
from bert_jax.data.pretraining.packing import PackedBatches
from bert_jax.models.config import Head
from bert_jax.models.encoder import abstract_params
from bert_jax.models.execution import Execution
from bert_jax.tasks import pretraining
from bert_jax.tasks.base.task import means
from bert_jax.tasks.pretraining import EvaluationOptions, PretrainingTask

OPTIONS = PretrainingOptions(length=64, max_predictions=12, short_probability=0.5)


@pytest.fixture(scope="module")
def make_task(tiny_corpus, tiny_config):
    """Builds a task with batches of eight rows of 64 tokens."""

    def make(packing: bool) -> PretrainingTask:
        corpus = Corpus.open(tiny_corpus)
        return PretrainingTask(
            corpus,
            corpus.tokenizer(),
            OPTIONS,
            ModelDescription(
                dataclasses.replace(tiny_config, max_position_embeddings=64), Head.PRETRAINING
            ),
            Execution(),
            global_batch_size=8,
            evaluation=EvaluationOptions(rows=8),
            packing=packing,
        )

    return make


def test_a_packed_batch_has_the_losses_and_gradients_of_its_examples(make_task, tiny_corpus):
    corpus = Corpus.open(tiny_corpus)
    examples = PretrainingBatches(corpus.splits["train"], corpus.tokenizer(), OPTIONS)
    packing = PackedBatches(examples)
    packed = packing.batch(0, 8)
    group = packing._group(0)
    unpacked = examples.examples(group.numbers[group.rows < 8])
    count = len(unpacked["input_ids"])
    assert count > 8
    assert count == (packed["next_sentence_weights"] == 1).sum()

    task = make_task(packing=True)
    chance = np.random.default_rng(0)
    params = jax.tree.map(
        lambda leaf: np.float32(chance.normal(0, 0.1, leaf.shape)), abstract_params(task.module)
    )

    @jax.jit
    def loss_and_gradient(params, batch):
        def loss(params):
            metrics = means(task.loss_sums(params, batch), task.loss_weights(batch))
            return metrics["loss"], metrics

        return jax.value_and_grad(loss, has_aux=True)(params)

    (_, found), found_gradient = loss_and_gradient(params, packed)
    (_, expected), expected_gradient = loss_and_gradient(params, unpacked)
    assert found == pytest.approx({name: float(x) for name, x in expected.items()}, rel=1e-6)
    largest = max(np.abs(leaf).max() for leaf in jax.tree.leaves(expected_gradient))
    for one, other in zip(*map(jax.tree.leaves, (found_gradient, expected_gradient)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6 * largest)


def test_packing_is_for_training_only(make_task):
    packed, unpacked = make_task(packing=True), make_task(packing=False)
    assert packed.examples_per_epoch < unpacked.examples_per_epoch
    for found, expected in zip(
        packed.evaluation_batches(host=0, hosts=1),
        unpacked.evaluation_batches(host=0, hosts=1),
        strict=True,
    ):
        assert list(found) == list(expected)
        for name, array in expected.items():
            assert found[name].tobytes() == array.tobytes()
    assert packed.baselines() == unpacked.baselines()
    assert "row 0, example 1: " in packed.examples_as_text(8)
    assert "row" not in unpacked.examples_as_text(8)


@pytest.mark.parametrize("objective", ["nsp", "sop", "none"])
def test_batches_of_nothing_have_the_shapes_of_batches(tiny_corpus, objective):
    config = default_config("pretraining")
    for key, value in {
        "data.objective": objective,
        "data.length": 20,
        "data.max_predictions": 4,
        "train.global_batch_size": 6,
        "model.size": "tiny",
        "tokenizer.path": str(tiny_corpus / "tokenizer"),
    }.items():
        set_key(config, key, value, where="test")
    without = pretraining.create_without_data(config, model_init.of_config(config))
    config.data.corpus = str(tiny_corpus)
    task = pretraining.create(config, model_init.of_config(config))
    (batch,) = task.train_batches(0, 1, host=0, hosts=1)
    real = {key: jax.ShapeDtypeStruct(value.shape, value.dtype) for key, value in batch.items()}
    assert without.batch_shapes() == task.batch_shapes() == real
    assert without.description == task.description


def test_the_vocabulary_of_a_model_that_has_none_yet():
    config = default_config("pretraining")
    assert (
        pretraining.create_without_data(
            config, model_init.of_config(config)
        ).description.config.vocab_size
        == config.tokenizer.vocab_size
        == 30_522
    )
