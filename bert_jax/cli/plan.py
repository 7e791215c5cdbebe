"""`bert-jax plan`: memory, FLOPs and time of a training on devices that need not exist locally."""

import argparse
import json

from bert_jax.cli.common import Parser, add_config, fields_from
from bert_jax.process import show

SUMMARY = "memory, FLOPs, time of a training on other devices"


def add_arguments(parser: Parser) -> None:
    """The arguments of the verb."""
    add_config(parser)
    add = parser.add_argument
    add("--topology", required=True, metavar="NAME", help="v5e:16x16, v4:4x4x4, h100:8, cpu:8")
    add(
        "--mesh",
        action="append",
        metavar="AXIS=SIZE,…",
        help="fsdp=64,data=4; or auto; or all. Several times: a table",
    )
    add("--steps", type=int, metavar="N", help="training steps (default: the config's)")
    add("--price", type=float, metavar="P", help="price of a device per hour")
    add(
        "--no-search",
        dest="search",
        action="store_false",
        help="do not search for the largest micro-batch, which compiles up to 4 more times",
    )
    add("--json", action="store_true", help="JSON instead of text")


def run(options: argparse.Namespace) -> int:
    """Prints plans as text, or as JSON on the last line."""
    from bert_jax.planning.hardware import parse_slice, prepare_process

    devices = parse_slice(options.topology)
    prepare_process(devices)  # before JAX starts
    from bert_jax.config import load_config
    from bert_jax.experiment import Experiment
    from bert_jax.planning.plan import PlanOptions
    from bert_jax.planning.report import as_text

    plan_options = fields_from(PlanOptions, options)
    experiment = Experiment.from_config(load_config(options.config, options.overrides))
    plans = experiment.plan(devices, plan_options)
    if options.json:
        print(json.dumps(plans[0] if len(plans) == 1 else {**plans[0], "meshes": plans}))
    else:
        show(as_text(plans))
    return 0
