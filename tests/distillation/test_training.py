"""Students that are trained: what a run writes, how it continues, and that they learn."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import bert_jax
from bert_jax.checkpoints.runs import RunCheckpoints
from bert_jax.checkpoints.tensors import open_tensors
from bert_jax.config import load_config
from bert_jax.experiment import Experiment
from bert_jax.models.encoder import abstract_params
from bert_jax.models.parameter_sharding import sharded_shapes

CONFIG = Path(__file__).parents[2] / "configs" / "distill.py"


def tensors_of(directory) -> dict[str, bytes]:
    with open_tensors(directory) as file:
        return {name: np.array(file.read(name)).tobytes() for name in file.tensors}


def assert_resumed_to_the_same_bits(experiment, run, again) -> None:
    """Repeats the last two of four steps of a run in a copy of it."""
    shutil.copytree(run, again)
    shutil.rmtree(again / "checkpoints" / "4")
    (again / "result.json").unlink()
    Experiment(experiment.sections).train(again)
    assert tensors_of(again / "model") == tensors_of(run / "model")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tags", "pairs"])
def test_a_run_ends_with_the_comparison_and_resumes_to_the_same_bits(
    experiment_of, teacher_of, tmp_path, name, capsys
):
    teacher = str(teacher_of(name))
    keys = {"init_from": teacher, "model.keep_layers": 1}  # the teacher's first layer
    keys |= {"train.checkpoint_every": 2, "train.export": "latest"}
    weights = dict.fromkeys(("hidden_weight", "attention_weight", "cosine_weight"), 0.1)
    experiment = experiment_of(name, keys, teacher=teacher, **weights)
    result = experiment.train(tmp_path / "run")
    metric = experiment.task.evaluator.best_metric[0]
    assert result[f"student_{metric}"] == result[metric]
    for model in ("teacher", "student"):
        assert result[f"{model}_ms_per_text"] > 0
    layer = 4 * (16 * 16 + 16) + 4 * 16 + 16 * 32 + 32 + 32 * 16 + 16  # D 16, F 32
    assert result["teacher_parameters"] - result["student_parameters"] == layer
    printed = [line.split()[:1] for line in capsys.readouterr().err.splitlines()]
    first = printed.index(["teacher"])
    assert printed[first : first + 3] == [["teacher"], ["student"], ["share"]]
    records = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").open()]
    parts = {"task_loss", "soft_loss", "hidden_loss", "attention_loss", "cosine_loss"}
    assert parts < set(records[0])
    stored = json.loads((tmp_path / "run" / "result.json").read_text())
    assert {key: stored[key] for key in result} == result
    # The model is one of the task, without anything of the teacher.
    assert bert_jax.load(tmp_path / "run").config.num_hidden_layers == 1
    assert_resumed_to_the_same_bits(experiment, tmp_path / "run", tmp_path / "again")


@pytest.mark.slow
def test_a_student_of_another_family(experiment_of, teacher_of, base_model, tmp_path):
    shape = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    shape |= {"intermediate_size": 16, "max_position_embeddings": 32, "family": "distilbert"}
    keys = {f"model.{name}": value for name, value in shape.items()}
    keys |= {"init_from": "", "tokenizer.path": str(base_model)}
    # Its hidden states have another width: a projection is learned, which only checkpoints hold.
    compared = {"teacher": str(teacher_of("tags")), "hidden_weight": 1.0}
    compared |= {"attention_weight": 0.5, "value_relation_weight": 0.5, "layer_map": (2,)}
    keys |= {"train.checkpoint_every": 2, "train.export": "latest"}
    experiment = experiment_of("tags", keys, **compared)
    result = experiment.train(tmp_path / "run")
    assert result["student_parameters"] < result["teacher_parameters"]
    student = bert_jax.load(tmp_path / "run")
    assert student.description.family.model_type == "distilbert"
    assert not [name for name in tensors_of(tmp_path / "run" / "model") if "projection" in name]
    records = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").open()]
    assert {"hidden_loss", "attention_loss", "value_relation_loss"} < set(records[0])
    assert_resumed_to_the_same_bits(experiment, tmp_path / "run", tmp_path / "again")
    with RunCheckpoints(tmp_path / "again", keep=1, read_only=True) as checkpoints:
        abstract = sharded_shapes(experiment.mesh, abstract_params(experiment.task.module))
        first, last = (
            np.asarray(checkpoints.restore_params(step, abstract)["hidden_projection"]["kernel"])
            for step in (2, 4)
        )
    assert first.shape == (8, 16)
    assert np.abs(first - last).max() > 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("family", ["bert", "distilbert"])
def test_a_model_that_fills_masks_is_distilled_on_a_corpus(
    make_model, tiny_corpus, tmp_path, family, capsys
):
    make_model("masked_lm", num_hidden_layers=4).save(tmp_path / "teacher")
    config = load_config(
        f"{CONFIG}:task=pretraining,teacher={tmp_path}/teacher,layers=2,corpus={tiny_corpus}",
        [
            *(("data.length", "16"), ("data.max_predictions", "3"), ("train.steps", "6")),
            *(("train.global_batch_size", "8"), ("train.log_every", "1")),
            *(("precision", "float32"), ("model.pad_vocab_to_multiple_of", "8")),
            ("model.family", family),
        ],
    )
    result = Experiment.from_config(config).train(tmp_path / "run")
    assert result["student_mlm_loss"] == result["mlm_loss"]
    assert 0 < result["student_parameters"] < result["teacher_parameters"]
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").open()]
    for line in (line for line in lines if line["split"] == "train"):
        total = 2 * line["mlm_loss"] + 5 * line["soft_loss"] + line["cosine_loss"]
        assert line["loss"] == pytest.approx(total, rel=1e-5)
    student = bert_jax.load(tmp_path / "run")
    assert student.description.family.model_type == family
    assert student.config.num_hidden_layers == 2
    assert student.fill_mask("the [MASK] sat .")
    if family == "distilbert":  # the head of words came from the teacher
        line = "a distilbert model leaves out bert.embeddings.token_type_embeddings.weight\n"
        printed = capsys.readouterr().err
        assert line in printed
        assert "new and untrained" not in printed
