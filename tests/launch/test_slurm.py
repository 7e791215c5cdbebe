"""launch/slurm.sh submits launch/slurm/job.sh, which is run here with a stand-in for srun."""

import shlex
import signal
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUN = ("train", "--config", "configs/pretrain.py:corpus=a b,size=base", "--workdir", "runs/a")

# Ends with the code in its first argument, or with 75 when it gets SIGTERM.
BERT_JAX = """
trap 'exit 75' TERM
printf '%s\\n' "$@" > "$RECORD/arguments"
touch "$RECORD/started"
[ "$1" = wait ] || exit "$1"
while :; do sleep 0.05; done
"""


def test_the_job_that_is_submitted(run_script):
    done = run_script(
        *("slurm.sh", "--nodes", "2", "--gpus", "8", "--time", "24:00:00"),
        *("--sbatch=--partition=a100", "--sbatch=--comment=two words", "--dry-run", "--", *RUN),
    )
    assert done.returncode == 0, done.stderr
    words = shlex.split(done.stdout)
    script = words.index("launch/slurm/job.sh")
    assert words[0] == "sbatch"
    assert words[script + 1 :] == list(RUN)
    assert set(words[1:script]) == {
        *("--job-name=bert-jax", "--nodes=2", "--ntasks-per-node=8", "--gpus-per-node=8"),
        *("--cpus-per-task=8", "--output=slurm-%j.out", "--open-mode=append", "--requeue"),
        *("--signal=B:USR1@120", "--time=24:00:00", "--partition=a100", "--comment=two words"),
    }


@pytest.fixture
def job(add_program, environment, tmp_path):
    """Starts the job's script as Slurm does; the other programs write down what they were given."""
    add_program("bert-jax", BERT_JAX)
    add_program("srun", 'echo "$1" > "$RECORD/srun"; shift; exec "$@"')
    add_program("scontrol", 'echo "$@" > "$RECORD/scontrol"')
    slurm = {"SLURM_SUBMIT_DIR": str(ROOT), "SLURM_JOB_ID": "7", "SLURM_CPUS_PER_TASK": "8"}

    def start(*arguments):
        return subprocess.Popen(
            ["bash", str(ROOT / "launch" / "slurm" / "job.sh"), *arguments],
            env=environment | slurm | {"RECORD": str(tmp_path)},
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


def wait_for(path):
    while not path.exists():
        time.sleep(0.05)


@pytest.mark.parametrize("code", [0, 1, 2, 75])
def test_the_code_of_the_run_is_that_of_the_job(job, tmp_path, code):
    process = job(str(code), "a b", "c,d")
    process.communicate()
    assert process.returncode == code
    assert (tmp_path / "arguments").read_text() == f"{code}\na b\nc,d\n"
    assert (tmp_path / "srun").read_text() == "--cpus-per-task=8\n"
    assert not (tmp_path / "scontrol").exists()


def test_before_the_time_is_up_the_run_saves_and_is_queued_again(job, tmp_path):
    process = job("wait")
    wait_for(tmp_path / "started")
    process.send_signal(signal.SIGUSR1)
    process.communicate()
    assert process.returncode == 75
    assert (tmp_path / "scontrol").read_text() == "requeue 7\n"


def test_a_cancelled_job_saves_and_is_not_queued_again(job, tmp_path):
    process = job("wait")
    wait_for(tmp_path / "started")
    process.send_signal(signal.SIGTERM)
    process.communicate()
    assert process.returncode == 75
    assert not (tmp_path / "scontrol").exists()


def test_mistakes_are_one_line(refused):
    assert "--nodes is missing" in refused("slurm.sh", "--", *RUN)
    assert "--gpus is missing" in refused("slurm.sh", "--nodes", "2", "--", *RUN)
    assert "--gpus 0: not a number" in refused("slurm.sh", "--nodes", "2", "--gpus", "0")
    assert "--nodes needs a value" in refused("slurm.sh", "--nodes")
    size = ("--nodes", "2", "--gpus", "8")
    assert "what is to run?" in refused("slurm.sh", *size)
    assert "only train and evaluate" in refused("slurm.sh", *size, "--", "prepare")
    assert "sbatch is not installed" in refused("slurm.sh", *size, "--", *RUN)
    assert "--node: unknown option" in refused("slurm.sh", "--node", "2")
