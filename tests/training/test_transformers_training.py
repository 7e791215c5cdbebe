"""Fifty steps of pre-training beside PyTorch: `transformers`' model, PyTorch's AdamW."""

import dataclasses

import jax
import numpy as np
import pytest

from bert_jax.checkpoints import model_directory
from bert_jax.sharding.hosts import to_global
from bert_jax.sharding.mesh import MeshShape, make_mesh
from bert_jax.training.optimizer import OptimizerOptions, make_optimizer
from bert_jax.training.step import abstract_state, make_train_step, new_state, with_params

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

STEPS, WARMUP_STEPS = 50, 10
# PyTorch's AdamW always corrects the bias of the moments, its schedule decays from the end of the
# warm-up: the switches in which google-research/bert, our default, differs.
OPTIONS = OptimizerOptions(
    learning_rate=1e-3,
    warmup_steps=WARMUP_STEPS,
    decay_from="warmup",
    weight_decay=0.1,
    bias_correction=True,
    max_grad_norm=4.0,
)


@pytest.fixture(scope="module")
def task(make_tiny_task, tiny_config):
    """Four layers of width 128, no dropout; masked words and sentence pairs of the tiny corpus."""
    return make_tiny_task(
        dataclasses.replace(
            tiny_config,
            hidden_size=128,
            num_hidden_layers=4,
            num_attention_heads=4,
            intermediate_size=512,
        )
    )


@pytest.fixture(scope="module")
def batches(task):
    return list(task.train_batches(0, STEPS, host=0, hosts=1))


@pytest.fixture(scope="module")
def initial(task, tmp_path_factory):
    """A new model of transformers, in a model directory."""
    fields = dataclasses.asdict(task.module.config)
    del fields["num_labels"]
    torch.manual_seed(0)
    model = transformers.BertForPreTraining(transformers.BertConfig(**fields))
    directory = tmp_path_factory.mktemp("initial")
    model.save_pretrained(directory)
    return directory


@pytest.fixture(scope="module")
def ours(task, batches, initial) -> dict[str, np.ndarray]:
    """The metrics of every step, by the step that `bert-jax train` takes."""
    mesh = make_mesh(MeshShape(), jax.local_devices()[:1])
    optimizer = make_optimizer(OPTIONS, STEPS)
    abstract = abstract_state(task, optimizer, mesh)
    step = make_train_step(task, optimizer, mesh=mesh, abstract=abstract, microbatches=1, seed=0)
    params, report = model_directory.load_params(initial, task.description, task.module, mesh=mesh)
    assert report.complete
    state = with_params(new_state(task, optimizer, abstract, seed=1), params)
    found = []
    for batch in batches:
        state, metrics = step(state, to_global(mesh, batch))
        found.append(jax.device_get(metrics))
    return {name: np.array([metrics[name] for metrics in found]) for name in found[0]}


@pytest.fixture(scope="module")
def theirs(batches, initial) -> dict[str, np.ndarray]:
    """The same with PyTorch alone."""
    model = transformers.BertForPreTraining.from_pretrained(initial).train()
    # Hugging Face never moves the embedding of [PAD] by what follows from it as an input. The
    # original does, and so do we: with 40 pieces [PAD] is often the random word of a mask.
    model.bert.embeddings.word_embeddings.padding_idx = None
    decayed, others = [], []
    for name, parameter in model.named_parameters():
        decays = "LayerNorm" not in name and not name.endswith("bias")
        (decayed if decays else others).append(parameter)
    groups = [
        {"params": decayed, "weight_decay": OPTIONS.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(
        groups,
        lr=OPTIONS.learning_rate,
        betas=(OPTIONS.beta1, OPTIONS.beta2),
        eps=OPTIONS.epsilon,
    )
    # A LambdaLR.
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, WARMUP_STEPS, STEPS)
    found: dict[str, list[float]] = {"loss": [], "gradient_norm": [], "learning_rate": []}
    for batch in batches:
        output = model(**torch_batch(batch))
        optimizer.zero_grad()
        output.loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), OPTIONS.max_grad_norm)
        found["loss"].append(output.loss.item())
        found["gradient_norm"].append(norm.item())
        found["learning_rate"].append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    return {name: np.array(values) for name, values in found.items()}


def torch_batch(batch: dict[str, np.ndarray]) -> dict[str, "torch.Tensor"]:
    """A batch as `transformers` wants it: a label for every token, -100 for none."""
    labels = np.full(batch["input_ids"].shape, -100)
    rows, places = np.nonzero(batch["masked_lm_weights"])
    labels[rows, batch["masked_lm_positions"][rows, places]] = batch["masked_lm_ids"][rows, places]
    assert (batch["next_sentence_weights"] == 1).all()
    arrays = {
        "input_ids": batch["input_ids"],
        "token_type_ids": batch["token_type_ids"],
        "attention_mask": batch["attention_mask"],
        "labels": labels,
        "next_sentence_label": batch["next_sentence_labels"],
    }
    return {name: torch.from_numpy(array.astype(np.int64)) for name, array in arrays.items()}


def test_the_losses_are_equal_at_every_step(ours, theirs):
    np.testing.assert_allclose(ours["loss"], theirs["loss"], rtol=0, atol=1e-4)


def test_the_gradients_are_equally_long_at_every_step(ours, theirs):
    np.testing.assert_allclose(ours["gradient_norm"], theirs["gradient_norm"], rtol=1e-3)


def test_the_learning_rates_are_equal_at_every_step(ours, theirs):
    np.testing.assert_allclose(ours["learning_rate"], theirs["learning_rate"], rtol=1e-6, atol=0)
    assert theirs["learning_rate"][0] == 0
    assert theirs["learning_rate"].argmax() == WARMUP_STEPS


def test_the_run_exercises_what_it_compares(theirs):
    # The gradients are clipped at some steps and not at others, and the model learns.
    clipped = theirs["gradient_norm"] > OPTIONS.max_grad_norm
    assert 0.1 < clipped.mean() < 0.9
    assert theirs["loss"][-5:].mean() < 0.9 * theirs["loss"][0]
    assert not np.isclose(theirs["gradient_norm"], OPTIONS.max_grad_norm, rtol=1e-4).any()
