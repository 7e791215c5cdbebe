"""Two real processes of two devices distil as one process of one device does."""

import json
import sys
from pathlib import Path

import pytest

from bert_jax import cli
from tests.runs import assert_same_metrics

pytestmark = pytest.mark.slow

CONFIG = Path(__file__).parents[2] / "configs" / "distill.py"
# Teacher and student are split over the devices of each host.
MESH = ["--config.mesh.fsdp=2", "--config.mesh.data=2"]


def test_a_teacher_is_split_over_devices_and_hosts(
    start_hosts, experiment_of, teacher_of, tmp_path, capsys
):
    teacher, data = teacher_of("classes"), experiment_of("classes").sections.task.data
    command = [
        *(sys.executable, "-m", "bert_jax", "train"),
        *("--config", f"{CONFIG}:teacher={teacher},layers=1,train={data.train}"),
        *(f"--config.data.validation={data.validation[0]}", "--config.data.length=16"),
        *("--config.train.steps=4", "--config.train.log_every=1", "--config.precision=float32"),
        *("--config.train.global_batch_size=8", "--config.model.pad_vocab_to_multiple_of=8"),
    ]
    layers = ["--config.distillation.hidden_weight=0.1"]
    kept = [f"--config.distillation.keep_logits={tmp_path}/scores"]

    def alone(name: str, *more: str) -> dict[str, float]:
        words = [*command, *more, "--workdir", str(tmp_path / name)]
        assert cli.main(words[3:]) == 0
        return json.loads(capsys.readouterr().out.splitlines()[-1])

    def together(name: str, *more: str) -> dict[str, float]:
        words = [*command, *MESH, *more, "--workdir", str(tmp_path / name)]
        hosts = start_hosts(words, 2, devices=2)
        texts = [process.communicate() for process in hosts]
        assert [process.returncode for process in hosts] == [0, 0], texts
        return json.loads(texts[0][0].splitlines()[-1])

    expected, result = alone("one", *layers), together("two", *layers)
    assert_same_metrics(tmp_path / "two", tmp_path / "one")
    for name in ("teacher_parameters", "student_parameters", "teacher_accuracy"):
        assert result[name] == expected[name]

    together("kept", *kept)
    alone("without")
    assert_same_metrics(tmp_path / "kept", tmp_path / "without")
