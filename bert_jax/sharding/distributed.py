"""Several processes as one run: `jax.distributed`, started before anything touches a device.

The processes are named by the command line, or by the cluster that started them: JAX reads the
environment of Slurm, Open MPI and Kubernetes and the metadata of a TPU slice. A single process
does not initialise jax.distributed.
"""

import dataclasses
import os
import socket
import sys
import threading
import warnings
from typing import Any, NoReturn

from bert_jax import process
from bert_jax.errors import OptionError, first_line, one_line, require_at_least

# A process without a heartbeat for this long counts as lost; JAX then ends all processes.
HEARTBEAT_SECONDS = 60
# The time limit of messages between hosts, ms: a heartbeat detects a lost host before.
A_WEEK = 7 * 24 * 3_600_000


@dataclasses.dataclass(frozen=True)
class ProcessOptions:
    """The index and number of processes of a run; all three options are set, or none.

    Attributes:
        coordinator: HOST:PORT of process 0, as reached by the other processes.
        processes: number of processes; 1 alone: ignore the cluster around this process.
        process_id: index of this process, from 0.
        timeout: seconds within which all processes must have joined.
    """

    coordinator: str | None = None
    processes: int | None = None
    process_id: int | None = None
    timeout: int = 300

    def __post_init__(self) -> None:
        require_at_least("processes", self.processes, 1)
        require_at_least("process_id", self.process_id, 0)
        names = ("coordinator", "processes", "process_id")
        missing = [name for name in names if getattr(self, name) is None]
        if len(missing) in (1, 2) and not self.is_alone:
            raise OptionError(
                missing[0],
                None,
                "several processes need --coordinator HOST:PORT, --processes N and --process-id I; "
                "in a cluster that JAX supports, none of them",
            )
        if self.process_id is not None and not 0 <= self.process_id < (self.processes or 1):
            raise OptionError(
                "process_id",
                self.process_id,
                f"of --processes {self.processes}, the last is {(self.processes or 1) - 1}",
            )
        if self.coordinator is not None:
            host, _, port = self.coordinator.rpartition(":")
            if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
                rule = "it must be HOST:PORT, as 10.0.0.1:9876"
                raise OptionError("coordinator", self.coordinator, rule)
        require_at_least("timeout", self.timeout, 1)

    @property
    def is_alone(self) -> bool:
        """Whether `--processes 1` states that there are no other processes."""
        return self.processes == 1


def start(options: ProcessOptions) -> None:
    """Joins the other processes, if there are any; returns when all have joined.

    Raises:
        UserError: the cluster does not name the processes, or the port is taken. If not all join
            in time, the process exits with one line.
    """
    if options.is_alone or not (options.coordinator or in_cluster()):
        return
    import jax

    if options.coordinator and options.process_id == 0:
        _check_port(options.coordinator)
    # `stopping.StopSignals` does this instead.
    jax.config.update("jax_enable_preemption_service", False)
    # JAX would abort with a long C++ stack trace.
    deadline = threading.Timer(
        options.timeout,
        leave,
        (
            f"not all processes have joined {options.coordinator or 'the coordinator'} within "
            f"{options.timeout} s; check that process 0 runs, that this host reaches that address, "
            "and that each process has its own --process-id, or raise "
            "--coordinator-timeout",
            2,
        ),
    )
    deadline.daemon = True
    deadline.start()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the error below contains them
            jax.distributed.initialize(
                options.coordinator,
                options.processes,
                options.process_id,
                initialization_timeout=options.timeout + 60,
                heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
            )
    except Exception as error:
        raise OptionError(
            "coordinator",
            None,
            "give --coordinator HOST:PORT, --processes N and --process-id I, or --processes 1 to "
            "run alone",
            problem=f"the cluster does not name the processes ({first_line(error)})",
        ) from error
    finally:
        deadline.cancel()


def in_cluster() -> bool:
    """Whether this process is probably one of several, by the environment variables of clusters.

    Without a cluster this is cheap; JAX finds out the details.
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
    """The client of the coordination service: key-value store and barriers of all processes.

    Unlike a collective it needs no device, has no time limit, and can be used from any thread.
    """
    return _state().client


def is_coordinator() -> bool:
    """Whether this process runs the coordination service, without which the run ends."""
    return _state().service is not None


def leave(message: str, code: int) -> NoReturn:
    """Prints a line and exits at once: an orderly exit would wait for the other processes."""
    process.state.code = code
    state = _state()
    name = f" (process {state.process_id} of {state.num_processes})" if state.process_id else ""
    sys.__stdout__.flush()  # type: ignore[union-attr]
    sys.__stderr__.write(one_line(f"bert-jax{name}: {message}") + "\n")  # type: ignore[union-attr]
    sys.__stderr__.flush()  # type: ignore[union-attr]
    os._exit(code)


def _state() -> Any:
    from jax._src import distributed  # JAX has no public name for it

    return distributed.global_state


def _number(text: str | None) -> int:
    return int(text) if text and text.isdecimal() else 1


def _check_port(coordinator: str) -> None:
    """Raises UserError if process 0 cannot listen on its port: JAX would crash."""
    port = int(coordinator.rpartition(":")[2])
    try:
        socket.create_server(("", port)).close()
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        rule = f"port {port} cannot be opened here ({reason}); choose another for all processes"
        raise OptionError("coordinator", coordinator, rule) from error
