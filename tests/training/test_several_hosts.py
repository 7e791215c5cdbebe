"""Real processes on the loopback train one run: the losses, parameters and files of one process."""

import json
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from bert_jax import cli
from tests.runs import assert_same_metrics, logged_step, printed_lines

pytestmark = pytest.mark.slow

STEPS = 12
KEYS = {
    "train.steps": STEPS,
    "train.eval_every": 6,
    "train.checkpoint_every": 4,
    "optimizer.warmup_steps": 3,
    "train.microbatches": 1,
}


def assert_same_model(actual: Path, expected: Path) -> None:
    ours, theirs = (load_file(run / "model" / "model.safetensors") for run in (actual, expected))
    assert set(ours) == set(theirs)
    for name, value in theirs.items():
        # The key's bias moves no output: its gradient is 0, and rounding is all that Adam sees.
        tolerance = 1e-2 if name.endswith("key.bias") else 1e-4
        np.testing.assert_allclose(ours[name], value, rtol=1e-4, atol=tolerance, err_msg=name)


def assert_whole(workdir: Path, starts: int = 1) -> None:
    """Nothing is half-written or left over, and one host wrote each file."""
    names = {path.name for path in workdir.iterdir()}
    assert names == {
        *("config.json", "model_config.json", "data.json", "tokenizer", "checkpoints", "model"),
        *("metrics.jsonl", "tensorboard", "curves.png", "result.json", "checksums.json"),
        "data_summary.json",
    }
    assert len(list((workdir / "tensorboard").iterdir())) == starts
    left = [path for path in workdir.rglob("*") if "partial" in path.name or "tmp" in path.name]
    assert left == []


def finish(processes: list) -> tuple[str, str]:
    """Output and errors of the main host; the other hosts end with 0, too, and print nothing."""
    texts = [process.communicate() for process in processes]
    for process, (_, errors) in zip(processes, texts, strict=True):
        assert process.returncode == 0, errors
    for output, errors in texts[1:]:
        assert printed_lines(output) == []
        assert errors == ""
    return texts[0]


def wait_for_step(processes: list, workdir: Path, step: int) -> None:
    while logged_step(workdir) < step:
        assert all(process.poll() is None for process in processes)
        time.sleep(0.01)


@pytest.fixture(scope="module")
def one_process(train_command, tmp_path_factory) -> Path:
    """The run of this process with one device."""
    workdir = tmp_path_factory.mktemp("one") / "run"
    assert cli.main(train_command(workdir, KEYS)[3:]) == 0
    return workdir


@pytest.fixture(scope="module")
def two_processes(train_command, start_hosts, tmp_path_factory) -> Path:
    """The run of two, each with a half of the parameters."""
    workdir = tmp_path_factory.mktemp("two") / "run"
    finish(start_hosts(train_command(workdir, KEYS | {"mesh.fsdp": 2}), 2))
    return workdir


def test_two_processes_train_as_one(train_command, start_hosts, one_process, tmp_path):
    workdir = tmp_path / "run"
    output, errors = finish(start_hosts(train_command(workdir, KEYS), 2))
    assert_same_metrics(workdir, one_process)
    assert_same_model(workdir, one_process)
    assert_whole(workdir)
    (line,) = printed_lines(output)
    result = json.loads(line)
    expected, stored = (
        json.loads((run / "result.json").read_text()) for run in (one_process, workdir)
    )
    assert stored.pop("warnings") == expected.pop("warnings")
    assert stored.pop("exported_step") == expected.pop("exported_step") == STEPS
    assert result == stored
    assert result == pytest.approx(expected, rel=1e-5)
    assert errors.count(f"step {STEPS} validation") == 1

    # A finished run is evaluated by as many processes as one likes, and exported.
    evaluate = [*train_command(workdir, {})[:3], "evaluate", "--workdir", str(workdir)]
    output, _ = finish(start_hosts(evaluate, 2, devices=2))
    assert json.loads(output.splitlines()[-1]) == pytest.approx(expected, rel=1e-5)
    export = [*evaluate[:3], "export", *evaluate[4:], "--output", str(tmp_path / "model")]
    output, _ = finish(start_hosts(export, 2))
    assert output.splitlines()[-1] == f"{tmp_path / 'model'}: step {STEPS} of {workdir}"
    exported, model = tmp_path / "model" / "model.safetensors", workdir / "model/model.safetensors"
    assert exported.read_bytes() == model.read_bytes()


@pytest.mark.parametrize(
    ("processes", "devices", "mesh"),
    [
        (2, 1, {"mesh.data": 1, "mesh.tensor": 2}),  # both make the same rows
        (4, 2, {"mesh.data": 2, "mesh.fsdp": 2, "mesh.tensor": 2}),
    ],
)
def test_parameters_that_lie_on_several_processes(
    train_command, start_hosts, one_process, tmp_path, processes, devices, mesh
):
    workdir = tmp_path / "run"
    finish(start_hosts(train_command(workdir, KEYS | mesh), processes, devices=devices))
    assert_same_metrics(workdir, one_process)
    assert_same_model(workdir, one_process)
    assert_whole(workdir)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_was_ended_goes_on_here_and_elsewhere(
    train_command, start_hosts, one_process, two_processes, tmp_path, number
):
    workdir = tmp_path / "run"
    command = train_command(workdir, KEYS | {"mesh.fsdp": 2})
    processes = start_hosts(command, 2)
    wait_for_step(processes, workdir, 7)
    processes[1].send_signal(number)
    texts = [process.communicate() for process in processes]
    assert processes[0].returncode == 75, texts[0][1]
    last_line = texts[0][1].splitlines()[-1]
    saved = max(int(p.name) for p in (workdir / "checkpoints").iterdir() if p.name.isdecimal())
    if number == signal.SIGTERM:
        assert processes[1].returncode == 75
        assert texts[1][1] == ""
        assert last_line == (
            f"bert-jax: stopped by a signal after saving step {saved}; run the same command to "
            "continue"
        )
        assert saved >= 7
    else:
        assert last_line.startswith("bert-jax: another process of this run ended without a message")
        assert saved in (4, 8)

    # On the same layout the bits equal the undisturbed run.
    elsewhere = Path(shutil.copytree(workdir, tmp_path / "elsewhere"))
    _, errors = finish(start_hosts(command, 2))
    assert f"resuming {workdir} at step {saved}" in errors
    for name in ("result.json", "model/model.safetensors", "model/config.json"):
        assert (workdir / name).read_bytes() == (two_processes / name).read_bytes()
    assert_whole(workdir, starts=2)

    # And on other numbers of processes and devices the run is the same up to rounding, from the
    # checkpoint of any step.
    if number == signal.SIGTERM:
        finish(start_hosts(train_command(elsewhere, KEYS), 1, devices=4))
        assert_same_metrics(elsewhere, one_process)
        assert_same_model(elsewhere, one_process)


def test_a_work_directory_that_is_not_shared(train_command, start_hosts, tmp_path):
    """Each process has its own disk."""
    command = train_command(Path("run"), KEYS)
    script = f'mkdir -p {tmp_path}/$$ && cd {tmp_path}/$$ && exec "$@"'
    where = Path(__file__).parents[2]
    processes = start_hosts(["env", f"PYTHONPATH={where}", "sh", "-c", script, "sh", *command], 2)
    texts = [process.communicate() for process in processes]
    assert [process.returncode for process in processes] == [2, 2]
    assert texts[1][1] == (
        "bert-jax (process 1 of 2): run/config.json of the main host is not seen from here; give a "
        "--workdir on a disk that all hosts share\n"
    )
    assert texts[0][1].splitlines()[-1].startswith("bert-jax: process 1 ended the run: run/config")
