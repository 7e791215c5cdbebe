"""Training on corrupted spans: the loss of an evaluation, and what planning reads."""

import dataclasses

import jax
import numpy as np
import optax
import pytest

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.config import default_config, set_key
from bert_jax.data.pretraining.corpus import synthetic_corpus
from bert_jax.data.pretraining.span_corruption import SpanTokens
from bert_jax.errors import UserError
from bert_jax.experiment import Experiment
from bert_jax.families import t5
from bert_jax.inference.evaluation import evaluate
from bert_jax.models.execution import Execution
from bert_jax.sharding.mesh import one_device_mesh
from bert_jax.tasks.base.corpora import Corpora
from bert_jax.tasks.base.train_spec import TaskConfig
from bert_jax.tasks.span_corruption import SpanCorruptionTask, SpanData
from bert_jax.training_options import OptimizerOptions, TrainOptions
from tests.random_params import random_params


@pytest.mark.slow
def test_an_evaluation_is_the_mean_over_the_tokens_of_all_targets(tokenizer, make_split):
    generator = np.random.default_rng(0)
    split = make_split([[generator.integers(5, 36, size).tolist()] for size in (20, 33, 9)])
    corpus = dataclasses.replace(
        synthetic_corpus(tokenizer), splits={"train": split, "validation": split}
    )
    config = t5.FAMILY.new_config(
        "tiny",
        vocab_size=40,
        hidden_size=16,
        num_hidden_layers=1,
        decoder_layers=1,
        num_attention_heads=2,
        attention_head_size=8,
        intermediate_size=32,
    )
    task = SpanCorruptionTask(
        TaskConfig(SpanData(length=16), TrainOptions(global_batch_size=3), OptimizerOptions()),
        Corpora({"": corpus}, tokenizer),
        ModelDescription(config, "text_to_text", family=t5.FAMILY),
        Execution(),
        SpanTokens(sentinels=(39, 38, 37, 36), eos=1, start=0, padding=0),
    )
    assert task.examples_per_epoch == 4  # 17 of 62 tokens each: not a whole number of batches
    params = random_params(task.module)
    actual = evaluate(task, params, one_device_mesh()).metrics

    rows = task._validation[""].examples(np.arange(4))
    logits = jax.jit(task.module.apply)(
        {"params": params},
        rows["input_ids"],
        attention_mask=rows["attention_mask"],
        decoder_input_ids=rows["decoder/input_ids"],
    )
    labels, weights = rows["decoder/labels"], rows["decoder/weights"]
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    expected = float((losses * weights).sum() / weights.sum())
    assert set(actual) == {"loss", "cross_entropy", "accuracy", "perplexity"}
    assert actual["loss"] == pytest.approx(expected, rel=1e-5)
    assert actual["perplexity"] == pytest.approx(np.exp(expected), rel=1e-5)

    counts = np.bincount(labels[weights > 0])
    share = counts.max() / counts.sum()
    assert task.evaluator.baselines() == {"accuracy_most_frequent": pytest.approx(share)}
    first, source, target = task.examples_as_text(1).splitlines()
    assert first == "example 0"
    assert len(source.split()) <= 16
    assert target.split()[0] == tokenizer.id_to_token(39)


def test_a_plan_needs_no_corpus():
    config = default_config("span_corruption")
    keys = {"model.family": "t5", "model.size": "tiny", "data.length": 512}
    for key, value in (keys | {"train.global_batch_size": 2}).items():
        set_key(config, key, value, where="test")
    task = dataclasses.replace(Experiment.from_config(config), with_data=False).task
    assert {name: leaf.shape for name, leaf in task.batch_shapes().items()} == {
        "input_ids": (2, 512),
        "attention_mask": (2, 512),
        "decoder/input_ids": (2, 114),
        "decoder/labels": (2, 114),
        "decoder/weights": (2, 114),
    }


def test_a_tokenizer_without_an_end_of_text_is_refused(tiny_corpus):
    config = default_config("span_corruption")
    for key, value in {"model.family": "t5", "data.corpus": str(tiny_corpus)}.items():
        set_key(config, key, value, where="test")
    message = "^span corruption: the tokenizer has no eos token; "
    with pytest.raises(UserError, match=message):
        _ = Experiment.from_config(config).task
