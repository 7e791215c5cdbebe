"""`bert-jax prepare`: text → tokenizer and corpus; of pairs of texts, a tokenizer alone."""

import argparse
import dataclasses
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from bert_jax.cli.common import Parser, add_config, directory
from bert_jax.errors import UserError, require_at_least
from bert_jax.process import say, show

if TYPE_CHECKING:
    from bert_jax.data.pretraining.options import VocabularyOptions

SUMMARY = "text → tokenizer and corpus"


def add_arguments(parser: Parser) -> None:
    """The arguments of the verb."""
    add_config(parser)
    add = parser.add_argument
    add("--output", type=directory, metavar="CORPUS", help="directory of the corpus, or tokenizer")
    add("--workers", type=int, metavar="N", help="number of processes (default: all cores)")
    add("--runner", choices=("local", "beam"), default="local", help="beam: many machines")
    add(
        "--runner-options",
        metavar="TEXT",
        help="options of Beam, such as '--runner=DataflowRunner --project=P'",
    )
    add("--limit", type=int, metavar="N", help="number of documents of each source")
    add("--dry-run", action="store_true", help="print statistics only; write nothing")
    add("--show", type=int, metavar="N", help="print N training examples")


def run(options: argparse.Namespace) -> int:
    """Prepares a corpus, or prints statistics of its text."""
    from bert_jax.config import load_config, set_key
    from bert_jax.experiment import Experiment

    config = load_config(options.config, options.overrides)
    if options.output is not None and "corpus" in config.data:
        set_key(config, "data.corpus", str(options.output), where="--output")  # read by --show
    experiment = Experiment.from_config(config)
    if vocabulary := experiment.sections.spec.vocabulary:
        return _train_vocabulary(options, *vocabulary(experiment.sections.task))
    prepare_options = experiment.prepare_options()
    if options.dry_run and options.show is not None:
        raise UserError("--show prints examples of a corpus, --dry-run makes none: leave one out")
    if options.dry_run:
        from bert_jax.data.pretraining.preparation.prepare import statistics

        counts = statistics(
            prepare_options,
            length=experiment.sections.task.data.length,
            limit=options.limit,
            workers=options.workers,
        )
        for name, value in counts.items():
            shown = f"{value:,.4f}" if isinstance(value, float) else f"{value:,}"
            show(f"{name:24} {shown}")
        return 0
    require_at_least("show", options.show, 1)
    if options.output is None:
        raise UserError("prepare needs --output CORPUS (or --dry-run)")
    from bert_jax.data.pretraining.preparation import beam
    from bert_jax.data.pretraining.preparation.prepare import prepare

    if options.runner == "local" and options.runner_options is not None:
        raise UserError("--runner-options are Beam's; add --runner beam, or leave them out")
    runner: dict[str, Any] = {}
    if options.runner == "beam":
        encode = beam.beam_runner(options.runner_options or "", options.workers, options.output)
        runner = {"encode_shards": encode, "batch_characters": beam.BATCH_CHARACTERS}
    manifest = prepare(
        prepare_options, options.output, workers=options.workers, limit=options.limit, **runner
    )
    splits = {name: dataclasses.asdict(counts) for name, counts in manifest.splits.items()}
    print(json.dumps({"corpus": str(options.output), **splits}))
    if options.show:
        show(experiment.task.examples_as_text(options.show))
    return 0


def _train_vocabulary(
    options: argparse.Namespace, texts: Iterable[str], vocabulary: "VocabularyOptions"
) -> int:
    """Trains a tokenizer; options of a corpus are refused."""
    from bert_jax.data.pretraining.preparation.vocabulary import train_tokenizer

    for name in ("workers", "runner_options", "limit", "show", "dry_run", "runner"):
        if getattr(options, name) != options.parser.get_default(name):
            flag = options.parser.flag_of(name)
            raise UserError(f"{flag} is for a corpus; this task needs a tokenizer: leave it out")
    if options.output is None:
        raise UserError("prepare needs --output DIR, the directory of the tokenizer")
    if options.output.exists() and any(options.output.iterdir()):
        raise UserError(f"{options.output} has files; give a new directory as --output")
    tokenizer = train_tokenizer(texts, vocabulary, report=lambda error: say(str(error)))
    tokenizer.save(options.output)
    print(json.dumps({"tokenizer": str(options.output), "vocab_size": tokenizer.vocab_size}))
    return 0
