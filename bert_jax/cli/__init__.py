"""`bert-jax`: one module per verb, with its arguments and its function.

Nothing heavy is imported before a verb runs.
"""

import argparse
import importlib
import logging
import re
import sys
from collections.abc import Sequence

from bert_jax.cli.common import Parser, outcome
from bert_jax.process import say, state
from bert_jax.sharding.runtime import quiet_libtpu

VERBS = (
    *("prepare", "train", "plan", "bench", "evaluate", "export", "predict"),
    *("index", "search", "rerank", "mine", "answer", "serve", "parity", "convert", "report"),
    "draw",
)
# Options with values that may begin with "-", which argparse takes for options.
_DASHED_VALUES = ("--layers", "--runner-options")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a verb.

    Returns:
        The exit code: 0 done, 1 differences in `parity`, 2 bad input, 75 stopped by a signal
        after saving, or by a store that could not be written to: run the same command again.
    """
    options = parse(list(sys.argv[1:] if arguments is None else arguments))
    quiet_libtpu()
    # Without a home directory it warns of slow starts.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    try:
        return options.run(options)
    except (Exception, KeyboardInterrupt) as error:
        message, code = outcome(error, options.parser)
        if state.is_installed:
            state.code = code
        say(f"bert-jax: {message}")
        return code


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The options of a command line, with `--config.KEY=VALUE` in `overrides`."""
    rest, overrides = _split_overrides(list(arguments))
    options = _parser().parse_args(_with_equals_signs(rest))
    options.overrides = overrides
    return options


def _parser() -> Parser:
    parser = Parser(
        prog="bert-jax",
        description="BERT in JAX: text → corpus → training run → model directory.",
        epilog="--config.KEY=VALUE overrides a config key, such as --config.train.steps=1000.",
    )
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    for name in VERBS:
        module = importlib.import_module(f"bert_jax.cli.{name}")
        verb = verbs.add_parser(name, help=module.SUMMARY)
        module.add_arguments(verb)
        verb.set_defaults(run=module.run, parser=verb)
    return parser


def _split_overrides(arguments: list[str]) -> tuple[list[str], list[tuple[str, str]]]:
    """Removes `--config.a.b=value` from the arguments."""
    rest, overrides = [], []
    for argument in arguments:
        match = re.fullmatch(r"--config\.([\w.]+)=(.*)", argument, flags=re.DOTALL)
        if match:
            overrides.append((match[1], match[2]))
        else:
            rest.append(argument)
    return rest, overrides


def _with_equals_signs(arguments: list[str]) -> list[str]:
    """Rewrites `--layers -4,-3` as `--layers=-4,-3`."""
    for option in _DASHED_VALUES:
        if option in arguments[:-1]:
            index = arguments.index(option)
            arguments[index : index + 2] = [f"{option}={arguments[index + 1]}"]
    return arguments


if __name__ == "__main__":
    sys.exit(main())
