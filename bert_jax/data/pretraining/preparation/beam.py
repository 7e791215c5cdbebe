"""Shards on Apache Beam: this machine's runner, Dataflow, Flink or Spark (extra [beam]).

One machine reads the files of a shard; their batches are encoded by all.
"""

import contextlib
import dataclasses
import functools
import io
import logging
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from bert_jax.data.pretraining.preparation.shards import (
    EncodeShards,
    EncodingWork,
    Shard,
    encode_batch,
    read_shard,
)
from bert_jax.errors import OptionError, UserError
from bert_jax.files import is_remote

_OWN_ERROR = re.compile(r"bert_jax\.errors\.\w+: (.*)")

# A batch is a file in a bucket, and so larger than for processes of this machine.
BATCH_CHARACTERS = 1 << 24
LOCAL_RUNNERS = ("DirectRunner", "InteractiveRunner", "PrismRunner")


def beam_runner(options: str, workers: int | None, output: Path) -> EncodeShards:
    """Checks the options of a Beam runner.

    Args:
        options: options as on a command line: "--runner=DataflowRunner --project=P …"; "" for the
            local runner.
        workers: number of processes of the local runner; None for Beam's default.
        output: directory of the corpus; the encoded batches are written next to it.

    Returns:
        A function that encodes shards with this runner, see `shards.EncodeShards`.

    Raises:
        UserError: Beam is not installed, an option is unknown, or the runner cannot access
            `output`.
    """
    try:
        with _quiet():
            from apache_beam.options import pipeline_options
    except ImportError as error:
        raise OptionError(
            "runner", "beam", "it needs the extra [beam]: pip install 'bert_jax[beam]'"
        ) from error
    try:
        words = shlex.split(options)
    except ValueError as error:
        raise _wrong_options(options, str(error)) from error
    if workers is not None:
        words = [
            *(f"--direct_num_workers={workers}", "--direct_running_mode=multi_processing"),
            *words,
        ]
    try:
        with _quiet() as stderr:
            parsed = pipeline_options.PipelineOptions(words)
            known = parsed.get_all_options(retain_unknown_options=False)
    except SystemExit as error:
        reason = stderr.getvalue().strip().rpartition("error: ")[2]
        raise _wrong_options(options, reason) from error
    for word in words:
        if word.startswith("--") and _name(word) not in known:
            raise _wrong_options(options, f"Beam does not know {word}")
    runner = parsed.view_as(pipeline_options.StandardOptions).runner or LOCAL_RUNNERS[0]
    runner = runner.rpartition(".")[2]
    if runner not in LOCAL_RUNNERS and not is_remote(output):
        raise UserError(
            f"{output}: the machines of {runner} cannot read this disk; "
            "give --output gs://BUCKET/CORPUS"
        )
    return functools.partial(_run, parsed)


def _wrong_options(options: str, reason: str) -> UserError:
    problem = f"Beam's options {options!r}: {reason}"
    return UserError(f"{problem}; correct --runner-options")


@contextlib.contextmanager
def _quiet() -> Iterator[io.StringIO]:
    """Captures the stderr of Beam (hundreds of lines of options), and drops its warnings."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stderr(io.StringIO()) as stderr:
            yield stderr
    finally:
        logging.disable(before)


def _name(word: str) -> str:
    name = word.partition("=")[0].removeprefix("--").replace("-", "_")
    return name.removeprefix("no_")


def _run(options: object, shards: Sequence[Shard], work: EncodingWork) -> None:
    import apache_beam

    logging.getLogger("apache_beam").setLevel(logging.ERROR)
    try:
        pipeline = apache_beam.Pipeline(options=options)
        _ = (
            pipeline
            | "shards" >> apache_beam.Create(list(shards))
            | "spread" >> apache_beam.Reshuffle()
            | "read" >> apache_beam.FlatMap(read_shard, work)
            | "distribute" >> apache_beam.Reshuffle()
            | "encode" >> apache_beam.Map(encode_batch, dataclasses.replace(work, done=frozenset()))
        )
        result = pipeline.run()
        try:
            result.wait_until_finish()
        except KeyboardInterrupt:
            # Otherwise remote machines would continue, and cost money.
            with contextlib.suppress(NotImplementedError):
                result.cancel()
            raise
    except UserError:
        raise
    except Exception as error:
        raise UserError(_reason(error)) from error


def _reason(error: BaseException) -> str:
    """The error of a worker in one line, out of Beam's reports of several pages."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    own = [match for line in lines if (match := _OWN_ERROR.search(line))]
    if own:
        return own[-1][1].partition(" [while running")[0]
    last = lines[-1] if lines else type(error).__name__
    return f"--runner beam: {last[:300]}; encoded batches stay: run the same command to continue"
