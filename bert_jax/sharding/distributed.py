"""Several processes as one run: `jax.distributed`, started before anything touches a device.

Who the processes are is said by the command line, or by the cluster that started them: JAX asks
Slurm, Open MPI, Kubernetes and the metadata of a TPU slice. A process that stands alone starts
nothing and waits for nobody.
"""

import dataclasses
import os
import socket
import sys
import threading
import warnings
from typing import Any, NoReturn

from bert_jax.errors import UserError, first_line

# Within this time all are told of a process that is silent; JAX ends them then.
HEARTBEAT_SECONDS = 60
# So long hosts wait for each other's word, ms: one that is gone is found by its silence.
A_WEEK = 7 * 24 * 3_600_000


@dataclasses.dataclass(frozen=True)
class ProcessOptions:
    """Which of several processes this is; all three are given, or none.

    Attributes:
        coordinator: HOST:PORT of process 0, as all others reach it.
        processes: how many there are; 1, given alone: a cluster around us is none of our business.
        process_id: which one this is, from 0.
        timeout: seconds within which all must have come.
    """

    coordinator: str | None = None
    processes: int | None = None
    process_id: int | None = None
    timeout: int = 300

    def __post_init__(self) -> None:
        given = {
            "--coordinator": self.coordinator,
            "--processes": self.processes,
            "--process-id": self.process_id,
        }
        if self.processes is not None and self.processes < 1:
            raise UserError(f"--processes {self.processes}: at least 1")
        missing = [name for name, value in given.items() if value is None]
        if len(missing) in (1, 2) and not self.is_alone:
            raise UserError(
                f"{' and '.join(missing)} missing: several processes need --coordinator HOST:PORT, "
                "--processes N and --process-id I; in a cluster that JAX knows, none of them"
            )
        if self.process_id is not None and not 0 <= self.process_id < (self.processes or 1):
            raise UserError(
                f"--process-id {self.process_id} of --processes {self.processes}: they are "
                f"numbered from 0 to {(self.processes or 1) - 1}"
            )
        if self.coordinator is not None:
            host, _, port = self.coordinator.rpartition(":")
            if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
                raise UserError(
                    f"--coordinator {self.coordinator} is not HOST:PORT, as 10.0.0.1:9876"
                )
        if self.timeout < 1:
            raise UserError(f"--coordinator-timeout {self.timeout}: at least 1 second")

    @property
    def is_alone(self) -> bool:
        """Whether it is said that there are no others."""
        return self.processes == 1


def start(options: ProcessOptions) -> None:
    """Joins the other processes, if there are any; returns when all have come.

    Raises:
        UserError: the cluster does not say who the processes are, or the port is taken. If not all
            come in time, the process ends with a line.
    """
    if options.is_alone or not (options.coordinator or in_cluster()):
        return
    import jax

    if options.coordinator and options.process_id == 0:
        _check_port(options.coordinator)
    # Hosts agree on when to stop in a way of their own, see `training.signals`.
    jax.config.update("jax_enable_preemption_service", False)
    # JAX would abort, with a page of C++.
    deadline = threading.Timer(
        options.timeout,
        leave,
        (
            f"not all processes have come to {options.coordinator or 'the coordinator'} within "
            f"{options.timeout} s; look whether process 0 runs, whether that address is reached "
            "from here, and whether each process has a --process-id of its own, or raise "
            "--coordinator-timeout",
            2,
        ),
    )
    deadline.daemon = True
    deadline.start()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what they say is in the error below
            jax.distributed.initialize(
                options.coordinator,
                options.processes,
                options.process_id,
                initialization_timeout=options.timeout + 60,
                heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
            )
    except Exception as error:
        raise UserError(
            f"the cluster does not tell who the processes are ({first_line(error)}); give "
            "--coordinator HOST:PORT, --processes N and --process-id I, or --processes 1 to run "
            "alone"
        ) from error
    finally:
        deadline.cancel()


def in_cluster() -> bool:
    """Whether this process seems to be one of several, by what clusters tell their processes.

    This costs nothing where there is no cluster; JAX finds out the rest.
    """
    environment = os.environ
    if "SLURM_STEP_NODELIST" in environment:  # a task of `srun`, not the shell around it
        return _number(environment.get("SLURM_NTASKS")) > 1
    if "OMPI_MCA_orte_hnp_uri" in environment:
        return _number(environment.get("OMPI_COMM_WORLD_SIZE")) > 1
    workers = environment.get("TPU_PROCESS_ADDRESSES", environment.get("TPU_WORKER_HOSTNAMES"))
    if workers and ("," in workers or _number(environment.get("MEGASCALE_NUM_SLICES")) > 1):
        return True  # GKE
    if "KUBERNETES_SERVICE_HOST" in environment and "JOB_COMPLETION_INDEX" in environment:
        return True
    from jax._src import cloud_tpu_init  # JAX has no public name for it

    return workers is None and bool(cloud_tpu_init.running_in_cloud_tpu_vm)


def coordination() -> Any:
    """The client of the service that all processes share: a few values, and barriers.

    Unlike a collective, it can be waited on for as long as it takes, from any thread, and it needs
    no device.
    """
    return _state().client


def is_coordinator() -> bool:
    """Whether this process serves the others: with it the run ends."""
    return _state().service is not None


_speaking = threading.Lock()


def leave(message: str, code: int) -> NoReturn:
    """Ends this process with a line, and at once: an orderly end would wait for the others."""
    _speaking.acquire()  # for good: of two threads with a message, one speaks
    state = _state()
    name = f" (process {state.process_id} of {state.num_processes})" if state.process_id else ""
    sys.__stdout__.flush()  # type: ignore[union-attr]
    sys.__stderr__.write(f"bert-jax{name}: {message}\n")  # type: ignore[union-attr]
    sys.__stderr__.flush()  # type: ignore[union-attr]
    os._exit(code)


def _state() -> Any:
    from jax._src import distributed  # JAX has no public name for it

    return distributed.global_state


def _number(text: str | None) -> int:
    return int(text) if text and text.isdecimal() else 1


def _check_port(coordinator: str) -> None:
    """Raises UserError where process 0 cannot listen: JAX would crash."""
    port = int(coordinator.rpartition(":")[2])
    try:
        socket.create_server(("", port)).close()
    except OSError as error:
        raise UserError(
            f"--coordinator {coordinator}: port {port} cannot be opened here "
            f"({os.strerror(error.errno or 0)}); choose another one for all processes"
        ) from error
