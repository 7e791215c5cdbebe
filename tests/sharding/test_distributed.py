"""Who the processes of a run are: flags, clusters, and what can be wrong with them."""

import os
import socket
import subprocess
import sys

import pytest

from bert_jax.cli import main
from bert_jax.errors import UserError
from bert_jax.sharding.distributed import ProcessOptions, coordination, in_cluster

FLAGS = {"coordinator": "10.0.0.1:9876", "processes": 4, "process_id": 3}


def test_none_or_all_of_the_flags():
    assert not ProcessOptions().is_alone
    assert not ProcessOptions(**FLAGS).is_alone
    assert ProcessOptions(processes=1).is_alone


@pytest.mark.parametrize("names", [["coordinator"], ["processes"], ["process_id", "coordinator"]])
def test_some_of_the_flags_are_refused(names):
    missing = next(name for name in FLAGS if name not in names)
    with pytest.raises(
        UserError, match=f"^{missing} is None; several processes need --coordinator"
    ):
        ProcessOptions(**{name: FLAGS[name] for name in names})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"process_id": 4}, "^process_id is 4; of --processes 4, the last is 3$"),
        ({"coordinator": "10.0.0.1"}, "^coordinator is '10.0.0.1'; it must be HOST:PORT"),
        ({"coordinator": ":9876"}, "^coordinator is ':9876'; it must"),
        ({"coordinator": "host:65536"}, "^coordinator is 'host:65536'; it"),
    ],
)
def test_flags_that_make_no_sense(changes, message):
    with pytest.raises(UserError, match=message):
        ProcessOptions(**FLAGS | changes)


SLURM = {"SLURM_STEP_NODELIST": "node[1-4]"}
KUBERNETES = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, False),
        (SLURM | {"SLURM_NTASKS": "4"}, True),
        (SLURM | {"SLURM_NTASKS": "1"}, False),
        # The shell of a job, around its steps: each `srun` in it starts the processes.
        ({"SLURM_NTASKS": "4", "SLURM_JOB_ID": "7"}, False),
        ({"OMPI_MCA_orte_hnp_uri": "1;tcp://h:1", "OMPI_COMM_WORLD_SIZE": "2"}, True),
        ({"TPU_WORKER_HOSTNAMES": "a,b"}, True),
        ({"TPU_WORKER_HOSTNAMES": "localhost"}, False),
        ({"TPU_WORKER_HOSTNAMES": "a", "MEGASCALE_NUM_SLICES": "2"}, True),
        # A notebook in a pod is no job.
        (KUBERNETES, False),
        (KUBERNETES | {"JOB_COMPLETION_INDEX": "0"}, True),
        (KUBERNETES | {"JOB_COMPLETION_INDEX": "0", "TPU_WORKER_HOSTNAMES": "localhost"}, True),
    ],
)
def test_clusters(monkeypatch, environment, expected):
    for name in list(os.environ):
        if name.startswith(("SLURM_", "OMPI_", "TPU_", "MEGASCALE_", "KUBERNETES_", "JOB_")):
            monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert in_cluster() == expected


def test_alone_there_is_nobody_to_talk_to():
    assert coordination() is None


@pytest.mark.parametrize("verb", ["train", "evaluate", "export"])
def test_verbs_take_the_flags(verb, capsys, tmp_path):
    rest = {"train": ["--config", "none.py"], "export": ["--output", str(tmp_path)]}
    code = main([verb, *rest.get(verb, []), "--workdir", str(tmp_path), "--process-id", "1"])
    assert code == 2
    assert capsys.readouterr().err.startswith(
        "bert-jax: --coordinator is None; several processes need --coordinator HOST:PORT, "
    )


def evaluate(*flags: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "bert_jax", "evaluate", "--workdir", "none", *flags]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("process", ["0", "1"])
def test_processes_that_do_not_join_in_time(process):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    done = evaluate(
        *("--coordinator", address, "--processes", "2", "--process-id", process),
        *("--coordinator-timeout", "2"),
    )
    name = " (process 1 of 2)" if process == "1" else ""
    assert done.stderr.splitlines()[-1].startswith(
        f"bert-jax{name}: not all processes have joined {address} within 2 s; check that "
    )
    assert len(done.stderr.splitlines()) == 1
    assert done.returncode == 2


@pytest.mark.slow
def test_a_port_that_is_taken():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        flags = ("--coordinator", f"127.0.0.1:{port}", "--processes", "2", "--process-id", "0")
        done = evaluate(*flags)
    assert done.stderr == (
        f"bert-jax: --coordinator is '127.0.0.1:{port}'; port {port} cannot be opened here "
        "(Address already in use); choose another for all processes\n"
    )
    assert done.returncode == 2


@pytest.mark.slow
def test_a_cluster_that_does_not_tell(monkeypatch):
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("JOB_COMPLETION_INDEX", "0")
    done = evaluate()
    assert done.stderr.startswith("bert-jax: the cluster does not name the processes (")
    assert len(done.stderr.splitlines()) == 1
    assert done.returncode == 2
