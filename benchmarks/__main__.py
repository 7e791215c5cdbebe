"""Measures works, each in alternating rounds of contenders; without a work, lists them.

    python -m benchmarks infer size=minilm batch=32 length=64,128 dtype=float32,bfloat16
    python -m benchmarks embed model=DIR texts=1000 --contenders bert_jax
    python -m benchmarks accelerator --budget 600

Several values of an option are several works. Results are files in `--output`, and a finished work
is not repeated. Words after -- are added to the commands of a work. Exit code 1: a reference failed
or was too slow, or a figure is beyond its limit.
"""

import argparse
import itertools
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.harness import Work, measure
from benchmarks.report import draw, outside, table
from benchmarks.works import ACCELERATOR, TINY, WORKS
from bert_jax.errors import UserError
from bert_jax.files import write_atomically

LEAST_SECONDS = 10.0


def combinations(work: Work, words: list[str], *, tiny: bool) -> Iterator[dict[str, Any]]:
    """The options for each combination of values.

    Raises:
        UserError: an option is unknown, missing, or of another type.
    """
    values: dict[str, list[Any]] = {name: [value] for name, value in work.options.items()}
    for word in words:
        name, _, text = word.partition("=")
        if name not in values:
            raise UserError(f"{word} is not an option; give NAME=VALUE of {', '.join(values)}")
        default = work.options[name]
        kind = default if isinstance(default, type) else type(default)
        convert = {"true": True, "false": False}.__getitem__ if kind is bool else kind
        try:  # a mesh has commas
            values[name] = [convert(one) for one in text.split(";" if name == "mesh" else ",")]
        except (ValueError, KeyError):
            raise UserError(f"{word} is not of type {kind.__name__}") from None
    values |= {name: [value] for name, value in TINY.items() if tiny and name in values}
    if missing := [name for name, (value, *_) in values.items() if isinstance(value, type)]:
        raise UserError(f"{', '.join(missing)} must be given as NAME=VALUE")
    for chosen in itertools.product(*values.values()):
        yield dict(zip(values, chosen, strict=True))


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("benchmarks", description=__doc__, formatter_class=formatter)
    add = parser.add_argument
    add("work", nargs="?", choices=[*WORKS, "accelerator"], metavar="WORK")
    add("options", nargs="*", metavar="NAME=VALUE,…", help="options of the work")
    add("--output", type=Path, default=Path("runs/benchmarks"), help="directory of the results")
    add("--contenders", nargs="+", metavar="NAME", help="these; the first one is the reference")
    add("--rounds", type=int, help="rounds that count")
    add("--steps", type=int, default=1, help="steps of a turn (default: 1)")
    add("--peer-python", default=sys.executable, help="environment of other libraries")
    add("--budget", type=float, default=float("inf"), metavar="SECONDS", help="of all works")
    add("--tiny", action="store_true", help="a small size, to try a work")
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    options = parser.parse_intermixed_args(arguments[:cut])
    options.more = arguments[cut + 1 :]
    known = WORKS[options.work].contenders if options.work in WORKS else {}
    if unknown := set(options.contenders or ()) - set(known):
        parser.error(f"{options.work} has no contender {', '.join(unknown)}")
    return options


def main(arguments: list[str]) -> int:
    """Measures and prints a table."""
    options = parse(arguments)
    if options.work is None:
        for name, work in WORKS.items():
            shown = (f"{key}={value}" for key, value in work.options.items())
            print(f"{name}: {work.what}\n   ", *work.contenders, "\n   ", *shown)
        return 0
    options.output.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + options.budget
    lines = ACCELERATOR if options.work == "accelerator" else [options.work]
    works: dict[str, Work] = {}
    results: dict[str, Any] = {}
    findings: list[str] = []
    text = ""
    try:
        for first, *words in map(str.split, lines):
            work = WORKS[first]
            for chosen in combinations(work, words + options.options, tiny=options.tiny):
                changed = (chosen[key] for key in chosen if chosen[key] != work.options[key])
                name = "-".join([first, *(Path(str(value)).name for value in changed)])
                seconds = max(LEAST_SECONDS, end - time.monotonic())
                works[name], results[name] = work, measure(name, work, chosen, options, seconds)
                findings += outside(name, work, results[name])
                text = table(works, results, findings)
                write_atomically(options.output / f"{options.work}.md", text.encode())
    except UserError as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2
    draw(results, options.output / f"{options.work}.png")
    print(text)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
