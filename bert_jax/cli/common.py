"""Shared parts of the verbs: arguments, exit codes, errors as one line. Imports nothing heavy."""

import argparse
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from bert_jax.errors import OptionError, RetryableError, UserError
from bert_jax.files import as_path
from bert_jax.options import keys_of
from bert_jax.process import BAD_INPUT, INTERRUPTED, STOPPED, say, state
from bert_jax.sharding.distributed import ProcessOptions, start

if TYPE_CHECKING:
    from jax.sharding import Mesh

# Section of a config with the options of readers, which are options of some verbs, too.
_DATA = "data."

Verb = Callable[[argparse.Namespace], int]
Options = TypeVar("Options")


class Parser(argparse.ArgumentParser):
    """A parser with errors of one line."""

    def error(self, message: str) -> NoReturn:
        """Prints the error and exits with 2."""
        self.exit(BAD_INPUT, f"{self.prog}: {message}; see {self.prog} --help\n")

    def flag_of(self, option: str) -> str:
        """The flag of an option, or its `--option`, see `OptionError.renamed`.

        Keys of a `--config` stay.
        """
        key, _, value = option.partition("=")
        flags = {action.dest: action.option_strings[-1:] for action in self._actions}
        name = key if "config" in flags else key.rpartition(".")[2]
        for flag in flags.get(name) or flags.get(f"input_{name}") or ():
            return f"{flag} {value}" if value and value != "false" else flag
        return f"--option {option.removeprefix(_DATA)}" if "option" in flags else option


def outcome(error: BaseException, parser: Parser) -> tuple[str, int]:
    """The message for an error of a verb, and the exit code; any other error is raised again."""
    if isinstance(error, KeyboardInterrupt):
        return str(error) or INTERRUPTED, STOPPED
    if state.was_raised:
        return INTERRUPTED, STOPPED
    if isinstance(error, OptionError):
        return str(error.renamed(parser.flag_of)), BAD_INPUT
    if isinstance(error, UserError):
        return str(error), STOPPED if isinstance(error, RetryableError) else BAD_INPUT
    if isinstance(error, OSError):
        path = f": {error.filename}" if error.filename else ""
        return f"{error.strerror or error}{path}; fix it and retry", BAD_INPUT
    raise error


def directory(text: str) -> Path:
    """A local path or one in a bucket, for argparse."""
    try:
        return as_path(text)
    except UserError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def fields_from(cls: type[Options], options: argparse.Namespace) -> Options:
    """A dataclass filled from the arguments with the names of its fields, else its defaults."""
    fields = {name: getattr(options, name, None) for name in keys_of(cls)}
    return cls(**{name: value for name, value in fields.items() if value is not None})


def add_option(parser: Parser, text: str) -> None:
    """Adds `--option KEY=VALUE`, which may be repeated; `values_of` reads it."""
    parser.add_argument("--option", action="append", default=[], metavar="KEY=VALUE", help=text)


def values_of(
    options: argparse.Namespace, others: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, Any]:
    """The values of `--option`, by key, and others; "data.titles", as in a config, is "titles".

    Raises:
        OptionError: an `--option` sets one of the others, such as those of flags.
    """
    values = dict(option.removeprefix(_DATA).partition("=")[::2] for option in options.option)
    for name in values.keys() & others:
        raise OptionError(name, values[name], "it is set without {option}; leave {option} out")
    return {**values, **others}


def say_written(output: str, counts: str) -> None:
    """Says what a file has, such as "30 queries"; nothing of stdout, "-"."""
    if output != "-":
        say(f"{output}: {counts}")


def local_mesh() -> "Mesh":
    """A mesh of the devices of this host, whose programs are read from the compilation cache."""
    import jax

    from bert_jax.sharding.mesh import MeshShape, make_mesh
    from bert_jax.sharding.runtime import use_compilation_cache

    use_compilation_cache()
    return make_mesh(MeshShape(), jax.local_devices())


def add_computing(parser: Parser, max_length: str = "") -> None:
    """Adds `--precision` and `--batch-size`; and, with this help, `--max-length`."""
    add = parser.add_argument
    add("--precision", help="float32 (default), bfloat16, or auto")
    add("--batch-size", type=int, default=32, metavar="N", help="rows computed together")
    if max_length:
        add("--max-length", type=int, metavar="N", help=max_length)


def open_models(options: argparse.Namespace, mesh: "Mesh", *names: str) -> list[Any]:
    """The models in the directories of these arguments; None for an argument without one.

    Raises:
        OptionError: there is a precision, but no model; see also `load`.
    """
    from bert_jax.inference.loading import load

    paths = [getattr(options, name) for name in names]
    if options.precision and not any(paths):
        rule = f"it is for models that are given, as {{{names[0]}}}; give one, or leave it out"
        raise OptionError("precision", options.precision, rule)
    precision = options.precision or "float32"
    return [load(path, precision=precision, mesh=mesh) if path else None for path in paths]


def add_config(parser: Parser, *, required: bool = True, default: str = "") -> None:
    """Adds `--config`; `--config.KEY=VALUE` is removed before argparse sees the arguments."""
    what = "a file, or the name of a config of the package, as glue:task=mrpc"
    text = f"{what} (default: {default})" if default else what
    parser.add_argument("--config", required=required, metavar="FILE[:ARGS]", help=text)


def add_hosts(parser: Parser) -> None:
    """Adds the options that identify this process among several."""
    hosts = parser.add_argument_group(
        "several hosts",
        "the same command on each; none of these options on TPU slices, Slurm and Kubernetes",
    )
    hosts.add_argument("--coordinator", metavar="HOST:PORT", help="where process 0 listens")
    hosts.add_argument("--processes", type=int, metavar="N", help="number of processes")
    hosts.add_argument("--process-id", type=int, metavar="I", help="index of this process, from 0")
    hosts.add_argument(
        "--coordinator-timeout",
        dest="timeout",
        type=int,
        metavar="SECONDS",
        help=f"seconds for all to start (default: {ProcessOptions.timeout})",
    )


def on_all_hosts(verb: Verb) -> Verb:
    """Decorates a verb that processes on several hosts run together; only the main host prints."""

    @functools.wraps(verb)
    def run(options: argparse.Namespace) -> int:
        start(fields_from(ProcessOptions, options))
        from bert_jax.sharding.stopping import ending_together

        with ending_together(functools.partial(outcome, parser=options.parser)):
            return verb(options)

    return run
