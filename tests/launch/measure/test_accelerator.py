"""The command that measures on an accelerator, rehearsed on the CPU, and parts that fail."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def without_tensorflow(directory: Path) -> dict[str, str]:
    """The environment of a process that cannot import TensorFlow."""
    for name in ("tensorflow", "tensorflow_datasets", "tensorflow_text"):
        (directory / f"{name}.py").write_text(f"raise ModuleNotFoundError('no {name} here')\n")
    return {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "PYTHON": sys.executable,
        "PYTHONPATH": str(directory),
    }


@pytest.mark.slow
def test_every_part_runs_without_tensorflow(tmp_path, script):
    output = tmp_path / "output"
    done = subprocess.run(
        [
            "bash",
            str(ROOT / "launch/measure/accelerator.sh"),
            "--output",
            str(output),
            "--rehearse",
        ],
        env=without_tensorflow(tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    parts = json.loads((output / "accelerator.json").read_text())["parts"]
    status = {name: part["status"] for name, part in parts.items()}
    peer = status.pop("peer-32")
    assert peer in ("done", "skipped")  # PyTorch may not be installed
    assert set(status.values()) == {"done"}
    names = ("machine", "kernels", "precision", "bench-tiny-32", "attention", "embed", "checkpoint")
    assert tuple(status) == names
    assert "1 × cpu" in done.stdout
    calls = parts["kernels"]["calls"]
    assert {call["kernel"] for call in calls} == {"xla", "blocked"}
    assert all(call["gradient"] < 1e-4 for call in calls if call["dtype"] == "float32")
    assert len(parts["precision"]["losses"]["bfloat16"]) == 3
    assert parts["bench-tiny-32"]["estimated_bytes"] > 1e6
    assert (output / "accelerator.md").read_text() == done.stdout.removesuffix("\n")


@pytest.mark.slow
def test_a_part_that_fails_or_hangs_does_not_lose_the_others(tmp_path, script, monkeypatch, capsys):
    accelerator = script("accelerator")
    parts = tmp_path / "accelerator_parts.py"
    parts.write_text(
        "import sys, time\n"
        "if sys.argv[1] == 'kernels': time.sleep(60)\n"
        "if sys.argv[1] == 'precision': raise MemoryError('no memory')\n"
        """print('{"rows": [["what", "1 ms", "0-2"]], "outside": []}')\n"""
    )
    monkeypatch.setattr(accelerator, "HERE", tmp_path)
    monkeypatch.setattr(accelerator, "LEAST", 0.1)
    names = ["machine", "precision", "kernels", "embed"]
    words = ["--output", str(tmp_path / "out"), "--rehearse", "--budget", "2", "--parts", *names]
    assert accelerator.main(words) == 1
    parts = json.loads((tmp_path / "out" / "accelerator.json").read_text())["parts"]
    assert [parts[name]["status"] for name in names] == ["done", "failed", "too slow", "skipped"]
    assert parts["precision"]["reason"] == "exit code 1: MemoryError: no memory"
    printed = capsys.readouterr().out
    assert "| machine | what | 1 ms | 0-2 |\n" in printed
    assert "- embed: skipped, the budget is used up\n" in printed


def test_a_result_outside_its_limit_fails_the_command(tmp_path, script, monkeypatch, capsys):
    accelerator = script("accelerator")
    (tmp_path / "accelerator_parts.py").write_text(
        """print('{"rows": [], "outside": ["xla: error 1"]}')\n"""
    )
    monkeypatch.setattr(accelerator, "HERE", tmp_path)
    assert accelerator.main(["--output", str(tmp_path / "out"), "--parts", "kernels"]) == 1
    assert "- kernels: outside its limit: xla: error 1\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "platforms"), [("cuda", "cuda,cpu"), ("cpu", "cpu"), ("tpu,cpu", "tpu,cpu"), ("", "")]
)
def test_parity_finds_the_cpu_and_peers_share_a_gpu(script, monkeypatch, given, platforms):
    monkeypatch.setenv("JAX_PLATFORMS", given)
    monkeypatch.delenv("XLA_PYTHON_CLIENT_PREALLOCATE", raising=False)
    accelerator = script("accelerator")
    assert accelerator.environment_of("kernels")["JAX_PLATFORMS"] == platforms
    assert "XLA_PYTHON_CLIENT_PREALLOCATE" not in accelerator.environment_of("kernels")
    assert accelerator.environment_of("peer-128")["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false"
