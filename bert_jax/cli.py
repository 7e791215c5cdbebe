"""`bert-jax`: parse the command line, call, print. Nothing heavy is imported before a verb runs."""

import argparse
import contextlib
import dataclasses
import json
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from bert_jax.benchmarks import command as bench_command
from bert_jax.errors import RetryableError, UserError
from bert_jax.files import as_path
from bert_jax.inference import predict_command
from bert_jax.planning import command as plan_command
from bert_jax.sharding import command as hosts_command
from bert_jax.sharding.runtime import quiet_libtpu

DIFFERS, BAD_INPUT, STOPPED = 1, 2, 75


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Exits with 2."""
        self.exit(BAD_INPUT, f"{self.prog}: {message}; see {self.prog} --help\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a verb.

    Returns:
        The exit code: 0 done, 1 `parity` found differences, 2 bad input, 75 stopped by a signal
        after saving, or by a store that could not be written to: run the same command again.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    rest, overrides = _split_overrides(given)
    options = _parser().parse_args(_joined(_joined(rest, "--layers"), "--runner-options"))
    options.overrides = overrides
    quiet_libtpu()
    try:
        return options.run(options)
    except (UserError, OSError, KeyboardInterrupt) as error:
        message, code = _outcome(error)
        _say(message)
        return code


def _outcome(error: BaseException) -> tuple[str, int]:
    """What users are told of an error, and the exit code; any other error is raised again."""
    if isinstance(error, UserError):
        return str(error), STOPPED if isinstance(error, RetryableError) else BAD_INPUT
    if isinstance(error, OSError):
        place = f": {error.filename}" if error.filename else ""
        return f"{error.strerror or error}{place}; mend it and run again", BAD_INPUT
    if isinstance(error, KeyboardInterrupt):
        return "interrupted; run the same command again", STOPPED
    raise error


def _say(message: str) -> None:
    """One line on stderr, in one piece: threads of libraries may be writing there too."""
    sys.stderr.write(f"bert-jax: {message}\n")


def _split_overrides(arguments: list[str]) -> tuple[list[str], list[tuple[str, str]]]:
    """Takes `--config.a.b=value` out of the arguments."""
    rest, overrides = [], []
    for argument in arguments:
        found = re.fullmatch(r"--config\.([\w.]+)=(.*)", argument, flags=re.DOTALL)
        if found:
            overrides.append((found[1], found[2]))
        else:
            rest.append(argument)
    return rest, overrides


def _place(text: str) -> Path:
    """A directory, here or in a bucket, as argparse wants to be told of mistakes."""
    try:
        return as_path(text)
    except UserError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _joined(arguments: list[str], option: str) -> list[str]:
    """`--layers -4,-3` as `--layers=-4,-3`: argparse takes what begins with "-" for an option."""
    if option not in arguments[:-1]:
        return arguments
    place = arguments.index(option)
    return [*arguments[:place], f"{option}={arguments[place + 1]}", *arguments[place + 2 :]]


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="bert-jax",
        description="BERT in JAX: text → corpus → training run → model directory.",
        epilog="--config.KEY=VALUE overrides a key of the config, as --config.train.steps=1000.",
    )
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    config = _Parser(add_help=False)
    config.add_argument(
        "--config", required=True, metavar="FILE[:ARGS]", help="configs/pretrain.py:size=mini"
    )

    prepare = verbs.add_parser("prepare", parents=[config], help="text → tokenizer and corpus")
    prepare.add_argument("--output", type=_place, metavar="CORPUS", help="directory of the corpus")
    prepare.add_argument("--workers", type=int, metavar="N", help="processes (default: all cores)")
    prepare.add_argument(
        "--runner", choices=("local", "beam"), default="local", help="beam: many machines"
    )
    prepare.add_argument(
        "--runner-options", metavar="TEXT", help="of Beam, as '--runner=DataflowRunner --project=P'"
    )
    prepare.add_argument("--limit", type=int, metavar="N", help="documents of each source")
    prepare.add_argument("--dry-run", action="store_true", help="only statistics; writes nothing")
    prepare.add_argument("--show", type=int, metavar="N", help="print N training examples")
    prepare.set_defaults(run=_prepare)

    train = verbs.add_parser("train", parents=[config], help="train a run, or go on with it")
    train.add_argument("--workdir", type=_place, required=True, metavar="RUN")
    train.add_argument(
        "--sweep",
        nargs="*",
        metavar="KEY=V,V",
        help="a run for each combination; without keys, the grid of the paper",
    )
    hosts_command.add_arguments(train)
    train.set_defaults(run=hosts_command.on_all_hosts(_train, _outcome))

    plan = verbs.add_parser(
        "plan", parents=[config], help="memory, FLOPs, time of a training on devices not here"
    )
    plan_command.add_arguments(plan)
    plan.set_defaults(run=_plan)

    bench = verbs.add_parser("bench", parents=[config], help="how fast this machine does the work")
    bench_command.add_arguments(bench)
    bench.set_defaults(run=_bench)

    evaluate = verbs.add_parser("evaluate", help="validation metrics as JSON")
    evaluate.add_argument("--config", metavar="FILE[:ARGS]", help="default: that of RUN")
    place = evaluate.add_mutually_exclusive_group(required=True)
    place.add_argument("--workdir", type=_place, metavar="RUN")
    place.add_argument("--model", type=_place, metavar="DIR", help="needs --config")
    evaluate.add_argument(
        "--output", type=_place, metavar="DIR", help="for predictions and reports (labelled tasks)"
    )
    hosts_command.add_arguments(evaluate)
    evaluate.set_defaults(run=hosts_command.on_all_hosts(_evaluate, _outcome))

    export = verbs.add_parser("export", help="run → model directory")
    export.add_argument("--workdir", type=_place, required=True, metavar="RUN")
    export.add_argument("--output", type=_place, required=True, metavar="DIR")
    export.add_argument(
        "--step", default="", help="latest, best or a number (default: the run's train.export)"
    )
    hosts_command.add_arguments(export)
    export.set_defaults(run=hosts_command.on_all_hosts(_export, _outcome))

    predict = verbs.add_parser("predict", help="a model's answers to a file, row by row")
    predict_command.add_arguments(predict)
    predict.set_defaults(run=_predict)

    parity = verbs.add_parser(
        "parity", help="differences from transformers, layer by layer (needs PyTorch)"
    )
    parity.add_argument("--model", required=True, metavar="DIR", help="or a hub id")
    parity.add_argument("--reference", metavar="DIR", help="what transformers reads; default: DIR")
    parity.add_argument("--json", action="store_true", help="in place of the table")
    parity.set_defaults(run=_parity)

    convert = verbs.add_parser(
        "convert", help="Google's or Hugging Face's files → model directory, or back to Google's"
    )
    convert.add_argument(
        "--input", required=True, metavar="DIR_OR_CKPT", help="a directory, checkpoint or hub id"
    )
    convert.add_argument("--output", type=_place, required=True, metavar="DIR")
    convert.add_argument("--task", metavar="NAME", help="the model to make, as classification")
    convert.add_argument("--to", choices=("huggingface", "google"), default="huggingface")
    convert.add_argument("--hidden-act", metavar="NAME", help="in place of what the config says")
    convert.add_argument("--add-words", type=Path, metavar="FILE", help="new words, one a line")
    convert.add_argument("--positions", type=int, metavar="N", help="a longer position table")
    convert.set_defaults(run=_convert)
    return parser


def _prepare(options: argparse.Namespace) -> int:
    from bert_jax import experiment
    from bert_jax.config import load_config

    config = load_config(options.config, options.overrides)
    prepare_options = experiment.prepare_options(config)
    if options.dry_run:
        from bert_jax.data.pretraining.preparation.statistics import statistics

        found = statistics(
            prepare_options,
            length=config.data.length,
            limit=options.limit,
            workers=options.workers,
        )
        for name, value in dataclasses.asdict(found).items():
            print(f"{name:24} {value:,.4f}" if isinstance(value, float) else f"{name:24} {value:,}")
        return 0
    if options.show is not None and options.show < 1:
        raise UserError(f"--show {options.show}: at least 1")
    if options.output is None:
        raise UserError("prepare needs --output CORPUS (or --dry-run)")
    from bert_jax.data.pretraining.preparation.beam import beam_runner
    from bert_jax.data.pretraining.preparation.prepare import prepare

    if options.runner == "local" and options.runner_options is not None:
        raise UserError("--runner-options are Beam's; add --runner beam, or leave them out")
    encode_shards = None
    if options.runner == "beam":
        encode_shards = beam_runner(options.runner_options or "", options.workers, options.output)
    # Both signals mean the same: what is written stays, the next call goes on from there.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    manifest = prepare(
        prepare_options,
        options.output,
        workers=options.workers,
        limit=options.limit,
        encode_shards=encode_shards,
    )
    splits = {name: dataclasses.asdict(counts) for name, counts in manifest.splits.items()}
    print(json.dumps({"corpus": str(options.output), **splits}))
    if options.show:
        config.data.corpus = str(options.output)
        print(experiment.make_task(config).examples_as_text(options.show))
    return 0


def _train(options: argparse.Namespace) -> int:
    from bert_jax import experiment
    from bert_jax.config import load_config
    from bert_jax.sharding.runtime import use_compilation_cache
    from bert_jax.training.signals import Interrupted

    use_compilation_cache()
    config = load_config(options.config, options.overrides)
    try:
        if options.sweep is not None or config.train.seeds:
            from bert_jax import sweep as several_runs
        if options.sweep is not None:
            grid = several_runs.parse_grid(options.sweep, config)
            metrics = several_runs.sweep(config, options.workdir, grid)
        elif config.train.seeds:
            metrics = several_runs.train_seeds(config, options.workdir)
        else:
            metrics = experiment.train(config, options.workdir)
    except Interrupted as stop:
        _say(f"{stop}; run the same command to go on")
        return STOPPED
    print(json.dumps(metrics))
    return 0


def _plan(options: argparse.Namespace) -> int:
    from bert_jax.planning.hardware import parse_slice, prepare_process

    wanted = parse_slice(options.topology)
    prepare_process(wanted)  # before JAX starts
    from bert_jax import costs
    from bert_jax.config import load_config
    from bert_jax.planning.report import as_text

    config = load_config(options.config, options.overrides)
    plans = costs.plan(config, wanted, plan_command.plan_options(options))
    if options.json:
        print(json.dumps(plans[0] if len(plans) == 1 else {**plans[0], "meshes": plans}))
    else:
        print(as_text(plans))
    return 0


def _bench(options: argparse.Namespace) -> int:
    from bert_jax import costs
    from bert_jax.benchmarks.bench import as_text
    from bert_jax.config import load_config
    from bert_jax.sharding.runtime import use_compilation_cache

    use_compilation_cache()
    wanted = bench_command.bench_options(options)
    found = costs.bench(load_config(options.config, options.overrides), wanted)
    print(as_text(found), file=sys.stderr)
    print(json.dumps(found))
    return 0


def _evaluate(options: argparse.Namespace) -> int:
    from bert_jax import experiment
    from bert_jax import workdir as run_directory
    from bert_jax.config import load_config, override_keys
    from bert_jax.sharding.runtime import use_compilation_cache

    use_compilation_cache()
    if options.config is not None:
        config = load_config(options.config, options.overrides)
    elif options.workdir is not None:
        run_config = run_directory.run_config(options.workdir)
        config = override_keys(run_config, options.overrides)
    else:
        raise UserError(
            "evaluate --model DIR needs --config FILE, which names the task and its data"
        )
    metrics = experiment.evaluate(config, options.workdir, options.model, options.output)
    print(json.dumps(metrics))
    return 0


def _export(options: argparse.Namespace) -> int:
    from bert_jax import experiment

    step = experiment.export(options.workdir, options.output, which=options.step)
    print(f"{options.output}: step {step} of {options.workdir}")
    return 0


def _predict(options: argparse.Namespace) -> int:
    with predict_command.names_of_options():
        return _answer(options)


def _answer(options: argparse.Namespace) -> int:
    import jax

    from bert_jax.data.readers.lines import may_wait
    from bert_jax.inference.loading import load
    from bert_jax.inference.predict import check_request, predict
    from bert_jax.sharding.mesh import MeshShape, make_mesh
    from bert_jax.sharding.runtime import use_compilation_cache
    from bert_jax.training.signals import StopSignals

    use_compilation_cache()
    chosen = predict_command.predict_options(options)
    check_request(options.task, options.input, options.output, chosen)
    # Each device has the whole model and answers its part of every batch.
    mesh = make_mesh(MeshShape(), jax.local_devices())
    model = load(options.model, precision=options.precision, mesh=mesh)
    # Not by an exception, which libraries that call Python now and then may swallow; but who waits
    # for a line is woken by nothing else.
    with contextlib.nullcontext() if may_wait(options.input) else StopSignals() as stop:
        count = predict(
            model,
            options.task,
            options.input,
            options.output,
            chosen,
            stopped=lambda: stop is not None and stop.requested,
        )
    print(f"{options.output}: {count:,} records", file=sys.stderr)
    return 0


def _parity(options: argparse.Namespace) -> int:
    from bert_jax.parity.compare import compare

    report = compare(options.model, options.reference)
    print(json.dumps(report.as_dict()) if options.json else report.as_table())
    return 0 if report.agrees else DIFFERS


def _convert(options: argparse.Namespace) -> int:
    from bert_jax.inference.conversion import convert

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what is half-written goes
    model = convert(
        options.input,
        options.output,
        task=options.task,
        to=options.to,
        hidden_act=options.hidden_act,
        words=options.add_words,
        positions=options.positions,
    )
    print(f"{options.output}: {model.description.class_name}, {model.report}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
