"""The arguments of `bert-jax plan`. Imports nothing heavy."""

import argparse
import dataclasses
import math

from bert_jax.errors import UserError


@dataclasses.dataclass(frozen=True)
class PlanOptions:
    """What is to be planned, beside the config.

    Attributes:
        meshes: as `fsdp=8,data=4`, `auto` or `all`; none: that of the config.
        search: whether the largest micro-batch is looked for.
        steps: of the training; None: as the config says.
        price: of a device for an hour, in whatever money.
    """

    meshes: tuple[str, ...] = ()
    search: bool = True
    steps: int | None = None
    price: float | None = None

    def __post_init__(self) -> None:
        if self.steps is not None and self.steps < 1:
            raise UserError(f"--steps {self.steps}: at least 1")
        if self.price is not None and not 0 <= self.price < math.inf:
            raise UserError(f"--price {self.price:g}: it must be 0 or more")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds all arguments of the verb but `--config`."""
    add = parser.add_argument
    add("--topology", required=True, metavar="NAME", help="v5e:16x16, v4:4x4x4, h100:8, cpu:8")
    add(
        "--mesh",
        action="append",
        default=[],
        metavar="AXIS=SIZE,…",
        help="fsdp=64,data=4; or auto; or all. Several times: a table",
    )
    add("--steps", type=int, metavar="N", help="of the training (default: the config's)")
    add("--price", type=float, metavar="P", help="of a device for an hour")
    add(
        "--no-search",
        dest="search",
        action="store_false",
        help="do not look for the largest micro-batch, which compiles up to 4 more times",
    )
    add("--json", action="store_true", help="in place of the text")


def plan_options(options: argparse.Namespace) -> PlanOptions:
    """The arguments as they were given.

    Raises:
        UserError: a number is out of range.
    """
    return PlanOptions(tuple(options.mesh), options.search, options.steps, options.price)
