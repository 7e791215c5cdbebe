"""Requirements for a teacher, and the origin of the student's layers."""

import dataclasses

import jax
import numpy as np
import pytest

import bert_jax
from bert_jax.checkpoints import model_directory
from bert_jax.config import complete_config
from bert_jax.distillation.options import DistillationOptions
from bert_jax.distillation.teacher import Teacher
from bert_jax.errors import OptionError, UserError
from bert_jax.experiment import Experiment
from bert_jax.models.execution import Execution
from bert_jax.models.surgery import chosen_layers
from bert_jax.tasks.base.model_init import initial_params
from bert_jax.tasks.base.task import ComputedModel


@pytest.mark.parametrize(
    ("task", "family", "data"),
    [
        ("pretraining", "bert", {"masking": "span", "objective": "none", "span_boundary": True}),
        ("replaced_tokens", "electra", {}),
    ],
)
def test_pretraining_with_a_head_that_no_teacher_has_is_refused(tiny_corpus, task, family, data):
    keys = {"task": task, "data": {"corpus": str(tiny_corpus), "length": 32, **data}}
    keys |= {
        "model": {"size": "tiny", "family": family},
        "distillation": {"teacher": "models/teacher"},
    }
    with pytest.raises(UserError, match="this task has no distillation"):
        _ = Experiment.from_config(complete_config(keys, where="test")).task


def test_a_teacher_that_does_not_fit_is_refused(experiment_of, make_model, tmp_path):
    task = experiment_of("classes").task
    labels = {"labels": ("x", "y", "z")}
    cases = {
        "does not know z; the student's labels are x, y, z": {"labels": ("x", "y")},
        "has labels that the data lack, w": {"labels": ("w", *"xyz")},
        "has them in another order, x, z, y": {"labels": ("x", "z", "y")},
        "was trained for multi_label_classification": {
            **labels,
            "problem_type": "multi_label_classification",
        },
        "has the head tagging, and the task needs classification": {**labels, "head": "tagging"},
    }
    for number, (message, fields) in enumerate(cases.items()):
        head = fields.get("head", "classification")
        model = make_model(head, num_labels=len(fields["labels"]))
        description = dataclasses.replace(model.description, **fields)
        path = tmp_path / str(number)
        model_directory.save(path, description, model.params, model.tokenizer)
        with pytest.raises(UserError, match=message) as result:
            Teacher.read(str(path), task, Execution(), 16)
        assert "\n" not in str(result.value)

    model = make_model("classification", num_labels=3)
    description = dataclasses.replace(model.description, **labels)
    model_directory.save(tmp_path / "short", description, model.params, model.tokenizer)
    with pytest.raises(UserError, match=f"the teacher {tmp_path}/short has 32 positions: lower it"):
        Teacher.read(str(tmp_path / "short"), task, Execution(), 64)


@pytest.mark.slow
def test_another_tokenizer_is_only_for_scores_of_whole_examples(
    experiment_of, teacher_of, tmp_path
):
    bert_jax.load(teacher_of("answers")).add_words(["cow"]).save(tmp_path / "answers")
    with pytest.raises(UserError, match="and the task compares scores of tokens") as result:
        _ = experiment_of("answers", teacher=str(tmp_path / "answers")).task
    assert "\n" not in str(result.value)
    bert_jax.load(teacher_of("classes")).add_words(["cow"]).save(tmp_path / "classes")
    teacher = str(tmp_path / "classes")
    weights = {"hidden_weight": 1.0, "attention_weight": 1.0}
    with pytest.raises(OptionError, match="states of their tokens cannot be compared") as result:
        _ = experiment_of("classes", teacher=teacher, **weights).task
    remedy = "leave out distillation.hidden_weight, distillation.attention_weight"
    assert str(result.value).endswith(f"; compare only scores: {remedy}")

    # No text contains "cow": the teacher with the student's words computes the same scores.
    experiment = experiment_of("classes", teacher=teacher)
    task = experiment.task
    assert task.frozen_inputs.load(experiment.mesh) is None
    (batch,) = task.train_batches(0, 1, host=0, hosts=1)
    model = bert_jax.load(teacher_of("classes"))
    inputs = {name: batch[name] for name in ("input_ids", "token_type_ids", "attention_mask")}
    expected = model.module.apply({"params": model.params}, **inputs)
    np.testing.assert_allclose(batch["teacher_scores"], expected, rtol=1e-4, atol=1e-5)

    # A teacher for longer texts reads as much of a text as the student.
    bert_jax.load(teacher).extend_positions(64).save(tmp_path / "longer")
    task = experiment_of("classes", {"data.length": 0}, teacher=str(tmp_path / "longer")).task
    assert task._kept._task.options == task.task.options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"soft_weight": 0.0, "teacher": "t"}, "soft_weight is 0.0; give it a weight above 0"),
        ({"temperature": 0.0}, "temperature is 0.0; it must be at least 1e-06 and at most 100"),
        ({"hidden_weight": -1.0}, "hidden_weight is -1.0; it must be at least 0"),
        ({"keep_logits": "d", "hidden_weight": 1.0}, "keep_logits is 'd'; only scores are kept"),
        ({"layer_map": (-1,)}, "layer_map is -1; it must be at least 0"),
        ({"layer_map": (0, 0)}, r"layer_map is \(0, 0\); give a layer of the teacher, from 1"),
    ],
)
def test_options(options, message):
    with pytest.raises(UserError, match=f"^distillation.{message}"):
        DistillationOptions(**options)


def test_a_distillation_needs_a_teacher(experiment_of):
    with pytest.raises(UserError, match="section distillation is set, and it names no teacher"):
        _ = experiment_of("classes", temperature=3.0).task


@pytest.mark.slow
def test_a_step_computes_the_teacher_and_the_projection(experiment_of, teacher_of, tmp_path):
    teacher = str(teacher_of("classes"))
    kept = experiment_of("classes", teacher=teacher, keep_logits=str(tmp_path)).task
    student_alone = ComputedModel(kept.description.config, has_global_tokens=True)
    assert kept.computed_models == (student_alone,)

    keys = {"init_from": "", "tokenizer.path": teacher, "model.hidden_size": 8}
    keys |= {"model.num_hidden_layers": 2, "model.num_attention_heads": 2}
    experiment = experiment_of("classes", keys, teacher=teacher, hidden_weight=1.0)
    student, teacher = experiment.task.computed_models
    # Embeddings and two layers, each from 8 to 16.
    assert student.flops_per_token == 3 * 2 * 8 * 16
    assert teacher == dataclasses.replace(student_alone, is_trained=False)


def test_layers_that_are_kept():
    assert chosen_layers(6, 12) == (0, 2, 4, 7, 9, 11)  # DistilBERT
    assert chosen_layers(3, 6) == (0, 2, 5)
    assert chosen_layers(1, 4) == (0,)
    assert chosen_layers((1, 3), 4) == (1, 3)
    for layers in (0, 5, (), (4,), (1, 1), (2, 1), (-1,), True, 1.5, "2"):
        with pytest.raises(UserError, match="^model.keep_layers is "):
            chosen_layers(layers, 4)


def test_a_model_with_a_part_of_its_layers(make_model):
    model = make_model("masked_lm", num_hidden_layers=4)
    fewer = model.keep_layers((0, 3))
    assert fewer.config.num_hidden_layers == fewer.module.config.num_hidden_layers == 2
    old, new = (each.params["bert"]["encoder"]["layers"] for each in (model, fewer))
    kernels = [np.asarray(each["attention"]["query"]["kernel"]) for each in (old, new)]
    np.testing.assert_array_equal(kernels[0][[0, 3]], kernels[1])


def test_layers_of_bert_begin_a_distilbert(experiment_of, teacher_of, capsys):
    teacher = teacher_of("classes")
    keys = {"init_from": str(teacher), "model.family": "distilbert", "model.keep_layers": (1,)}
    experiment = experiment_of("classes", keys, teacher=str(teacher))
    init, task, config = experiment.model_init, experiment.task, experiment.task.description.config
    assert task.description.class_name == "DistilBertForSequenceClassification"
    assert (config.type_vocab_size, config.num_hidden_layers, config.has_pooler) == (0, 1, False)
    assert config.classifier_dropout == 0.2  # DistilBERT's, not the 0.1 of BERT

    params = initial_params(init, task, experiment.mesh, seed=0)
    printed = capsys.readouterr().err
    assert (
        "a distilbert model leaves out bert.embeddings.token_type_embeddings.weight, "
        "bert.pooler.dense.bias, bert.pooler.dense.weight, classifier.bias, classifier.weight\n"
    ) in printed
    assert "new and untrained: classifier/dense/bias, classifier/dense/kernel" in printed
    expected = bert_jax.load(teacher).params["bert"]
    assert set(params["bert"]["embeddings"]) == {
        *("word_embeddings", "position_embeddings", "layer_norm"),
    }
    for name, table in params["bert"]["embeddings"].items():
        jax.tree.map(
            lambda result, old: np.testing.assert_array_equal(result[: len(old)], old),
            table,
            expected["embeddings"][name],
        )
    jax.tree.map(
        lambda result, old: np.testing.assert_array_equal(result, old[1:2]),
        params["bert"]["encoder"],
        expected["encoder"],
    )


def test_a_family_with_other_layers_is_refused(experiment_of, teacher_of):
    keys = {"init_from": str(teacher_of("classes")), "model.family": "roberta"}
    message = (
        "model.family is 'roberta'; init_from holds a model of the family bert, with another "
        "positions_after_padding, masked-LM head, kind of tokenizer; leave it out"
    )
    with pytest.raises(UserError, match=f"^{message}$"):
        _ = experiment_of("classes", keys).model_init


def test_a_family_for_longer_texts_needs_a_conversion(experiment_of, teacher_of):
    keys = {"init_from": str(teacher_of("classes")), "model.family": "longformer"}
    message = "holds a model of the family bert: make it one first, by bert-jax convert --to longf"
    with pytest.raises(UserError, match=message):
        _ = experiment_of("classes", keys).model_init


def test_layers_of_nothing():
    config = complete_config({"task": "pretraining", "model": {"keep_layers": 2}}, where="test")
    with pytest.raises(UserError, match=r"model\.keep_layers is 2; it chooses layers of the model"):
        _ = Experiment.from_config(config).model_init
