"""Fifty steps of distilling beside PyTorch: every part of the loss, from the same weights."""

import dataclasses

import jax
import numpy as np
import pytest

from bert_jax.checkpoints import model_directory
from bert_jax.distillation.options import DistillationOptions
from bert_jax.distillation.task import DistilledTask
from bert_jax.distillation.teacher import Teacher
from bert_jax.models.execution import Execution
from bert_jax.sharding.mesh import MeshShape, make_mesh
from bert_jax.training_options import OptimizerOptions
from tests.training.trajectory import by_name, metrics_of_bert_jax, torch_adamw

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

STEPS = 50
OPTIMIZER = OptimizerOptions(
    learning_rate=1e-3, decay="constant", weight_decay=0.1, bias_correction=True, max_grad_norm=0
)
TEMPERATURE, WIDTH = 2.0, 32


@dataclasses.dataclass(frozen=True)
class Case:
    """Weights of the loss, the width of the teacher, and the layers that are compared with its."""

    weights: dict[str, float]
    width: int
    layer_map: tuple[int, int]

    @property
    def layers(self) -> list[tuple[int, int]]:
        return [(own, its) for own, its in enumerate(self.layer_map, start=1) if its]


CASES = {
    "every part": Case(
        {"task": 2.0, "soft": 5.0, "cosine": 1.0, "hidden": 0.5, "attention": 0.25}, WIDTH, (2, 4)
    ),
    # Student and teacher have different widths: TinyBERT's projection, and MiniLM.
    "projection": Case({"task": 1.0, "soft": 1.0, "hidden": 2.0}, 48, (2, 4)),
    "relations": Case(
        {"task": 0.5, "soft": 0.5, "attention": 1.0, "value_relation": 1.0}, 48, (0, 4)
    ),
}


@pytest.fixture(scope="module", params=CASES)
def case(request):
    return CASES[request.param]


@pytest.fixture(scope="module")
def directories(tiny_config, make_tiny_task, case, tmp_path_factory):
    """A teacher of four layers and a student of two, new models of transformers."""
    made = {}
    shapes = (("teacher", 4, case.width, 0.2), ("student", 2, WIDTH, 0.05))
    for name, layers, width, spread in shapes:
        fields = dataclasses.asdict(tiny_config)
        fields = {key: fields[key] for key in fields if hasattr(transformers.BertConfig(), key)}
        del fields["num_labels"]
        fields |= {"hidden_size": width, "num_hidden_layers": layers, "initializer_range": spread}
        torch.manual_seed(layers)
        model = transformers.BertForPreTraining(transformers.BertConfig(**fields))
        made[name] = tmp_path_factory.mktemp(name)
        model.save_pretrained(made[name])
        config = dataclasses.replace(
            tiny_config,
            hidden_size=width,
            num_hidden_layers=layers,
        )
        make_tiny_task(config).tokenizer.save(made[name])
    return made


@pytest.fixture(scope="module")
def task(tiny_config, make_tiny_task, case, directories):
    config = dataclasses.replace(tiny_config, hidden_size=WIDTH)
    plain = make_tiny_task(config)
    options = DistillationOptions(
        teacher=str(directories["teacher"]),
        temperature=TEMPERATURE,
        layer_map=case.layer_map,
        **{f"{part}_weight": weight for part, weight in case.weights.items()},
    )
    teacher = Teacher.read(options.teacher, plain, Execution(), 16)
    return DistilledTask(plain, teacher, options, plain, plain)


@pytest.fixture(scope="module")
def batches(task):
    return list(task.train_batches(0, STEPS, host=0, hosts=1))


def projection_of(task, directory) -> np.ndarray:
    """The matrix that a training begins with, empty if it has none."""
    mesh = make_mesh(MeshShape(), jax.local_devices()[:1])
    params, _ = model_directory.load_params(directory, task.description, task.module, mesh=mesh)
    return np.array(params["hidden_projection"]["kernel"] if "hidden_projection" in params else ())


def relation_loss(student, teacher, is_token) -> "torch.Tensor":
    """MiniLM, equations 5 and 8: KL of distributions [B, N, T, T], the mean of heads and tokens."""
    terms = teacher * (teacher.clamp_min(1e-38).log() - student.clamp_min(1e-38).log())
    return torch.where(teacher > 0, terms, 0.0).sum(-1).mean(1)[is_token].mean()


def value_relations(values, heads, is_token) -> "torch.Tensor":
    """MiniLM, equation 6: values [B, T, D] → [B, N, T, T]."""
    split = values.unflatten(-1, (heads, -1)).transpose(1, 2)  # BNTH
    scores = split @ split.transpose(2, 3) / split.shape[-1] ** 0.5
    return scores.masked_fill(~is_token[:, None, None, :], -torch.inf).softmax(-1)


def run(model, given) -> tuple[object, list["torch.Tensor"]]:
    """The outputs of a model, and the values of each layer."""
    values = []
    hooks = [
        layer.attention.self.value.register_forward_hook(lambda _, __, out: values.append(out))
        for layer in model.bert.encoder.layer
    ]
    outputs = model(**given, output_hidden_states=True, output_attentions=True)
    for hook in hooks:
        hook.remove()
    return outputs, values


def layer_losses(case, given, student, teacher, projection) -> dict[str, "torch.Tensor"]:
    functional = torch.nn.functional
    is_token = given["attention_mask"].bool()
    (mine, my_values), (other, its_values) = student, teacher
    last = [each.hidden_states[-1][is_token] for each in (mine, other)]
    actual = {"hidden": [], "attention": [], "value_relation": []}
    for own, its in [(0, 0), *case.layers] if "hidden" in case.weights else ():
        states = mine.hidden_states[own][is_token] @ projection
        actual["hidden"].append(functional.mse_loss(states, other.hidden_states[its][is_token]))
    for own, its in case.layers:
        weights = mine.attentions[own - 1], other.attentions[its - 1]
        actual["attention"].append(relation_loss(*weights, is_token))
        heads = weights[0].shape[1]
        relations = (
            value_relations(values, heads, is_token)
            for values in (my_values[own - 1], its_values[its - 1])
        )
        actual["value_relation"].append(relation_loss(*relations, is_token))
    losses = {name: sum(values) / len(values) for name, values in actual.items() if values}
    if "cosine" in case.weights:  # there, both have the same width
        losses["cosine"] = functional.cosine_embedding_loss(*last, torch.ones(len(last[0])))
    return {name: loss for name, loss in losses.items() if name in case.weights}


def losses(case, batch, student, teacher, projection) -> dict[str, "torch.Tensor"]:
    """The parts of the loss, from the papers' formulas, with PyTorch's own functions."""
    functional = torch.nn.functional
    given = {
        name: torch.from_numpy(batch[name].astype(np.int64))
        for name in ("input_ids", "token_type_ids", "attention_mask")
    }
    mine = run(student, given)
    with torch.no_grad():
        other = run(teacher, given)
    rows, places = map(torch.from_numpy, np.nonzero(batch["masked_lm_weights"]))
    positions = torch.from_numpy(batch["masked_lm_positions"].astype(np.int64))[rows, places]
    words = torch.from_numpy(batch["masked_lm_ids"].astype(np.int64))[rows, places]
    pairs = torch.from_numpy(batch["next_sentence_labels"].astype(np.int64))
    scores = [each.prediction_logits[rows, positions] for each, _ in (mine, other)]
    return {
        "task": functional.cross_entropy(scores[0], words)
        + functional.cross_entropy(mine[0].seq_relationship_logits, pairs),
        "soft": functional.kl_div(
            functional.log_softmax(scores[0] / TEMPERATURE, -1),
            functional.softmax(scores[1] / TEMPERATURE, -1),
            reduction="batchmean",
        )
        * TEMPERATURE**2,
        **layer_losses(case, given, mine, other, projection),
    }


def theirs(case, batches, directories, kernel) -> dict[str, np.ndarray]:
    student, teacher = (
        transformers.BertForPreTraining.from_pretrained(
            directories[name], attn_implementation="eager"
        )
        for name in ("student", "teacher")
    )
    projection, learned = torch.eye(WIDTH), []
    if kernel.size:
        projection = torch.nn.Parameter(torch.from_numpy(kernel))
        learned.append(projection)
    optimizer = torch_adamw(student, OPTIMIZER, learned)
    actual = []
    for batch in batches:
        parts = losses(case, batch, student.train(), teacher.eval(), projection)
        parts["loss"] = sum(case.weights[part] * value for part, value in parts.items())
        optimizer.zero_grad()
        parts["loss"].backward()
        optimizer.step()
        actual.append({name: value.item() for name, value in parts.items()})
    return by_name(actual)


def test_the_losses_are_equal_at_every_step(case, task, batches, directories):
    kernel = projection_of(task, directories["student"])
    new = ["hidden_projection/kernel"] if kernel.size else []
    actual = metrics_of_bert_jax(
        task, batches, OPTIMIZER, directories["student"], microbatches=2, new=new
    )
    expected = theirs(case, batches, directories, kernel)
    for part in case.weights.keys() - {"task"}:
        np.testing.assert_allclose(actual[f"{part}_loss"], expected[part], atol=1e-4, err_msg=part)
    own = actual["mlm_loss"] + actual["nsp_loss"]
    np.testing.assert_allclose(own, expected["task"], atol=1e-4)
    np.testing.assert_allclose(actual["loss"], expected["loss"], atol=1e-4)
    assert expected["loss"][-5:].mean() < 0.9 * expected["loss"][0]
