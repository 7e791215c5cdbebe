"""Fifty steps of pre-training beside PyTorch: `transformers`' models, PyTorch's AdamW.

Text, tokenizer, examples, masks and optimizer are those of the shipped config of each family.
"""

import inspect
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from bert_jax.config import load_config, set_key
from bert_jax.data.pretraining.preparation.prepare import prepare
from bert_jax.experiment import Experiment
from bert_jax.families.family import find_family
from tests.training.trajectory import by_name, metrics_of_bert_jax, torch_adamw, torch_labels

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

CONFIGS = Path(__file__).parents[2] / "configs"
STEPS, WARMUP_STEPS = 50, 10
# PyTorch's AdamW always corrects the bias of the moments, its schedule decays from the end of the
# warm-up: the switches in which google-research/bert, our default, differs.
OVERRIDES = {
    "precision": "float32",
    "model.hidden_size": 64,
    "model.num_hidden_layers": 3,
    "model.num_attention_heads": 4,
    "model.intermediate_size": 128,
    "model.max_position_embeddings": 32,
    "model.hidden_dropout_prob": 0.0,
    "model.attention_probs_dropout_prob": 0.0,
    "data.length": 32,
    "data.max_predictions": 5,
    "data.sentences": "lines",
    "data.validation_fraction": 1e-6,  # the last document
    "optimizer.name": "adamw",
    "optimizer.learning_rate": 2e-3,
    "optimizer.warmup_ratio": 0.0,
    "optimizer.warmup_steps": WARMUP_STEPS,
    "optimizer.decay_from": "warmup",
    "optimizer.weight_decay": 0.1,
    "optimizer.max_grad_norm": 2.0,
    "optimizer.bias_correction": True,
    "train.steps": STEPS,
    "train.global_batch_size": 8,
}


class Case(NamedTuple):
    """What is compared: a config, a class of transformers, and the name of its labels of pairs."""

    config: str
    class_name: str
    pair_labels: str
    overrides: dict[str, object]


CASES = {
    "bert": Case(
        "pretrain", "BertForPreTraining", "next_sentence_label", {"tokenizer.vocab_size": 60}
    ),
    "roberta": Case(
        "pretrain_roberta",
        "RobertaForMaskedLM",
        "",
        # Two positions come before the first token's.
        {"tokenizer.vocab_size": 300, "model.max_position_embeddings": 34},
    ),
    "albert": Case(
        "pretrain_albert",
        "AlbertForPreTraining",
        "sentence_order_label",
        {"tokenizer.vocab_size": 45, "model.embedding_size": 32, "model.classifier_dropout": 0.0},
    ),
    # The config of RoBERTa with another family.
    "mpnet": Case(
        "pretrain_roberta",
        "MPNetForMaskedLM",
        "",
        {"model.family": "mpnet", "tokenizer.vocab_size": 300, "model.max_position_embeddings": 34},
    ),
    "modernbert": Case(
        "pretrain_roberta",
        "ModernBertForMaskedLM",
        "",
        # A window of 4 tokens to both sides, which rows of 32 exceed.
        {
            "model.family": "modernbert",
            "tokenizer.vocab_size": 300,
            "model.num_hidden_layers": 4,
            "model.local_attention": 8,
        },
    ),
    "deberta_v2": Case(
        "pretrain_roberta",
        "DebertaV2ForMaskedLM",
        "",
        # Rows of 32 exceed the buckets and the distances.
        {
            "model.family": "deberta_v2",
            "tokenizer.vocab_size": 300,
            "model.num_hidden_layers": 4,
            "model.position_buckets": 8,
            "model.max_relative_positions": 20,
        },
    ),
}


@pytest.fixture(scope="module", params=CASES)
def family(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def experiment(family, tiny_text, tmp_path_factory) -> Experiment:
    """A training on a new corpus of the tiny text."""
    config = load_config(f"{CONFIGS / CASES[family].config}.py:source=text:{tiny_text}")
    for key, value in (OVERRIDES | CASES[family].overrides).items():
        set_key(config, key, value, where="test")
    corpus = tmp_path_factory.mktemp(family) / "corpus"
    prepare(Experiment.from_config(config).prepare_options(), corpus, workers=1, progress=False)
    set_key(config, "data.corpus", str(corpus), where="test")
    return Experiment.from_config(config)


@pytest.fixture(scope="module")
def batches(experiment):
    return list(experiment.task.train_batches(0, STEPS, host=0, hosts=1))


@pytest.fixture(scope="module")
def initial(family, experiment, tmp_path_factory):
    """A new model of transformers, in a model directory."""
    config, known = experiment.task.description.config, find_family(family)
    fields = {key: known.fields(config)[name] for name, key in known.file_fields().items()}
    del fields["num_labels"]
    model_class = getattr(transformers, CASES[family].class_name)
    torch.manual_seed(0)
    model = model_class(model_class.config_class(**fields))
    directory = tmp_path_factory.mktemp("initial")
    model.save_pretrained(directory)
    return directory


@pytest.fixture(scope="module")
def ours(experiment, batches, initial) -> dict[str, np.ndarray]:
    return metrics_of_bert_jax(experiment.task, batches, experiment.sections.optimizer, initial)


@pytest.fixture(scope="module")
def theirs(family, experiment, batches, initial) -> dict[str, np.ndarray]:
    """The same with PyTorch alone."""
    case, options = CASES[family], experiment.sections.optimizer
    model = getattr(transformers, case.class_name).from_pretrained(initial).train()
    parameters = inspect.signature(model.forward).parameters
    optimizer = torch_adamw(model, options)
    # A LambdaLR.
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, WARMUP_STEPS, STEPS)
    actual = []
    for batch in batches:
        inputs = torch_batch(batch, case.pair_labels)
        if "token_type_ids" not in parameters:
            del inputs["token_type_ids"]
        output = model(**inputs)
        optimizer.zero_grad()
        output.loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), options.max_grad_norm)
        actual.append(
            {
                "loss": output.loss.item(),
                "gradient_norm": norm.item(),
                "learning_rate": schedule.get_last_lr()[0],
            }
        )
        optimizer.step()
        schedule.step()
    return by_name(actual)


def torch_batch(batch: dict[str, np.ndarray], pair_labels: str) -> dict[str, "torch.Tensor"]:
    """A batch as `transformers` wants it."""
    arrays = {
        "input_ids": batch["input_ids"],
        "token_type_ids": batch["token_type_ids"],
        "attention_mask": batch["attention_mask"],
        "labels": torch_labels(batch),
    }
    if pair_labels:
        assert (batch["next_sentence_weights"] == 1).all()
        arrays[pair_labels] = batch["next_sentence_labels"]
    return {name: torch.from_numpy(array.astype(np.int64)) for name, array in arrays.items()}


def test_losses_gradients_and_rates_are_equal_at_every_step(ours, theirs):
    np.testing.assert_allclose(ours["loss"], theirs["loss"], rtol=0, atol=1e-4)
    np.testing.assert_allclose(ours["gradient_norm"], theirs["gradient_norm"], rtol=1e-3)
    np.testing.assert_allclose(ours["learning_rate"], theirs["learning_rate"], rtol=1e-6, atol=0)
    assert theirs["learning_rate"][0] == 0
    assert theirs["learning_rate"].argmax() == WARMUP_STEPS


def test_the_compared_run_has_clipping_padding_and_labels(family, experiment, batches, theirs):
    # The gradients are clipped at some steps and not at others, and the model learns.
    limit = experiment.sections.optimizer.max_grad_norm
    clipped = theirs["gradient_norm"] > limit
    assert 0.1 < clipped.mean() < 0.9
    assert theirs["loss"][-5:].mean() < 0.9 * theirs["loss"][0]
    assert not np.isclose(theirs["gradient_norm"], limit, rtol=1e-4).any()
    # Some rows have padding, masks are others at every step, and the pairs have both labels.
    assert not all(batch["attention_mask"].all() for batch in batches)
    assert len({batch["input_ids"].tobytes() for batch in batches}) == STEPS
    if CASES[family].pair_labels:
        labels = np.concatenate([batch["next_sentence_labels"] for batch in batches])
        assert set(labels.tolist()) == {0, 1}
    # Some rows of RoBERTa continue in the next document, behind another </s>.
    if not CASES[family].pair_labels:
        separator = experiment.task.tokenizer.special_ids.sep
        ids = np.concatenate([batch["input_ids"] for batch in batches])
        assert {1, 2} <= set((ids == separator).sum(axis=1).tolist())
