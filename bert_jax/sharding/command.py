"""What the command line says of several hosts: options of the verbs that compute on all of them."""

import argparse
import functools
import signal
from collections.abc import Callable

from bert_jax.sharding.distributed import ProcessOptions, start

Verb = Callable[[argparse.Namespace], int]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that say which of several processes this one is."""
    hosts = parser.add_argument_group(
        "several hosts",
        "the same command on each; none of these options on TPU slices, Slurm and Kubernetes",
    )
    hosts.add_argument("--coordinator", metavar="HOST:PORT", help="where process 0 listens")
    hosts.add_argument("--processes", type=int, metavar="N", help="how many there are")
    hosts.add_argument("--process-id", type=int, metavar="I", help="of this one, from 0")
    hosts.add_argument(
        "--coordinator-timeout",
        type=int,
        default=ProcessOptions.timeout,
        metavar="SECONDS",
        help="within which all have to come (default: %(default)s)",
    )


def on_all_hosts(verb: Verb, outcome: Callable[[BaseException], tuple[str, int]]) -> Verb:
    """A verb that processes on several hosts run together; only the main host prints.

    Args:
        verb: touches devices.
        outcome: see `failures.ending_together`.
    """

    @functools.wraps(verb)
    def run(options: argparse.Namespace) -> int:
        # Outside the loop, which saves first, there is nothing to save.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        start(
            ProcessOptions(
                coordinator=options.coordinator,
                processes=options.processes,
                process_id=options.process_id,
                timeout=options.coordinator_timeout,
            )
        )
        from bert_jax.sharding.failures import ending_together

        with ending_together(outcome):
            return verb(options)

    return run
