"""Fifty steps of distilling beside PyTorch: every part of the loss, from the same weights."""

import dataclasses

import numpy as np
import pytest

from bert_jax.distillation.options import DistillationOptions
from bert_jax.distillation.task import DistilledTask
from bert_jax.distillation.teacher import Teacher
from bert_jax.models.execution import Execution
from bert_jax.training.optimizer import OptimizerOptions
from tests.training.trajectory import by_name, metrics_of_bert_jax, torch_adamw

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

STEPS = 50
OPTIMIZER = OptimizerOptions(
    learning_rate=1e-3, decay="constant", weight_decay=0.1, bias_correction=True, max_grad_norm=0
)
WEIGHTS = {"task": 2.0, "soft": 5.0, "cosine": 1.0, "hidden": 0.5, "attention": 0.25}
TEMPERATURE, LAYERS = 2.0, (2, 4)


@pytest.fixture(scope="module")
def directories(tiny_config, make_tiny_task, tmp_path_factory):
    """A teacher of four layers and a student of two, new models of transformers."""
    made = {}
    for name, layers, spread in (("teacher", 4, 0.2), ("student", 2, 0.05)):
        fields = dataclasses.asdict(tiny_config)
        fields = {key: fields[key] for key in fields if hasattr(transformers.BertConfig(), key)}
        del fields["num_labels"]
        fields |= {"hidden_size": 32, "num_hidden_layers": layers, "initializer_range": spread}
        torch.manual_seed(layers)
        model = transformers.BertForPreTraining(transformers.BertConfig(**fields))
        made[name] = tmp_path_factory.mktemp(name)
        model.save_pretrained(made[name])
        config = dataclasses.replace(
            tiny_config,
            hidden_size=32,
            num_hidden_layers=layers,
        )
        make_tiny_task(config).tokenizer.save(made[name])
    return made


@pytest.fixture(scope="module")
def task(tiny_config, make_tiny_task, directories):
    config = dataclasses.replace(tiny_config, hidden_size=32)
    plain = make_tiny_task(config)
    options = DistillationOptions(
        teacher=str(directories["teacher"]),
        temperature=TEMPERATURE,
        layer_map=LAYERS,
        **{f"{part}_weight": weight for part, weight in WEIGHTS.items()},
    )
    teacher = Teacher.of(options.teacher, plain, Execution(), 16)
    return DistilledTask(plain, teacher, options, plain)


@pytest.fixture(scope="module")
def batches(task):
    return list(task.train_batches(0, STEPS, host=0, hosts=1))


def losses(batch, student, teacher) -> dict[str, "torch.Tensor"]:
    """The parts of the loss, from the papers' formulas, with PyTorch's own functions."""
    functional = torch.nn.functional
    given = {
        name: torch.from_numpy(batch[name].astype(np.int64))
        for name in ("input_ids", "token_type_ids", "attention_mask")
    }
    options = {"output_hidden_states": True, "output_attentions": True}
    mine = student(**given, **options)
    with torch.no_grad():
        other = teacher(**given, **options)
    rows, places = map(torch.from_numpy, np.nonzero(batch["masked_lm_weights"]))
    positions = torch.from_numpy(batch["masked_lm_positions"].astype(np.int64))[rows, places]
    words = torch.from_numpy(batch["masked_lm_ids"].astype(np.int64))[rows, places]
    pairs = torch.from_numpy(batch["next_sentence_labels"].astype(np.int64))
    scores = [each.prediction_logits[rows, positions] for each in (mine, other)]
    is_token = given["attention_mask"].bool()
    last = [each.hidden_states[-1][is_token] for each in (mine, other)]
    compared = list(zip((0, 1, 2), (0, *LAYERS), strict=True))
    hidden = [
        functional.mse_loss(mine.hidden_states[own][is_token], other.hidden_states[its][is_token])
        for own, its in compared
    ]
    attention = []
    for own, its in compared[1:]:
        p, q = other.attentions[its - 1], mine.attentions[own - 1]  # BNTS
        terms = torch.where(p > 0, p * (p.clamp_min(1e-38).log() - q.clamp_min(1e-38).log()), 0.0)
        attention.append(terms.sum(-1).mean(1)[is_token].mean())
    return {
        "task": functional.cross_entropy(scores[0], words)
        + functional.cross_entropy(mine.seq_relationship_logits, pairs),
        "soft": functional.kl_div(
            functional.log_softmax(scores[0] / TEMPERATURE, -1),
            functional.softmax(scores[1] / TEMPERATURE, -1),
            reduction="batchmean",
        )
        * TEMPERATURE**2,
        "cosine": functional.cosine_embedding_loss(*last, torch.ones(len(last[0]))),
        "hidden": sum(hidden) / len(hidden),
        "attention": sum(attention) / len(attention),
    }


def theirs(batches, directories) -> dict[str, np.ndarray]:
    student, teacher = (
        transformers.BertForPreTraining.from_pretrained(
            directories[name], attn_implementation="eager"
        )
        for name in ("student", "teacher")
    )
    optimizer = torch_adamw(student, OPTIMIZER)
    found = []
    for batch in batches:
        parts = losses(batch, student.train(), teacher.eval())
        parts["loss"] = sum(WEIGHTS[part] * value for part, value in parts.items())
        optimizer.zero_grad()
        parts["loss"].backward()
        optimizer.step()
        found.append({name: value.item() for name, value in parts.items()})
    return by_name(found)


def test_the_losses_are_equal_at_every_step(task, batches, directories):
    found = metrics_of_bert_jax(task, batches, OPTIMIZER, directories["student"], microbatches=2)
    expected = theirs(batches, directories)
    for part in ("soft", "cosine", "hidden", "attention"):
        np.testing.assert_allclose(found[f"{part}_loss"], expected[part], atol=1e-4, err_msg=part)
    own = found["mlm_loss"] + found["nsp_loss"]
    np.testing.assert_allclose(own, expected["task"], atol=1e-4)
    np.testing.assert_allclose(found["loss"], expected["loss"], atol=1e-4)
    assert expected["loss"][-5:].mean() < 0.9 * expected["loss"][0]
