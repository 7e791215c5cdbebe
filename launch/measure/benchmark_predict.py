r"""How well `predict` overlaps its work on the host with that of the device.

    python launch/measure/benchmark_predict.py --model DIR [--rows 100000] [--rounds 3]

Short texts, a text a line, are classified by a new head of two classes: whole; without the model,
where all scores are 0, so that reading, tokenising, packing and writing are left; and the model
alone, on the batches of a part of the rows, made before. All alternate in one process. Prints the
rows per second of each, and that of the whole as a share of the slower of the two. On a CPU both
use the same cores: the last line is the share of what these can do at most, where the processor
times of the two add up.
"""

import argparse
import itertools
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import numpy as np
from timed_rounds import ratios, with_spread
from timed_runs import markdown
from uneven_texts import SHORT, uneven_texts

import bert_jax
from bert_jax.inference.predict import predict
from bert_jax.tasks.base.predict_spec import PredictOptions
from bert_jax.tasks.base.streams import make_batches
from bert_jax.tasks.classification.predict import LabelPredictor

# Distinct texts; they are repeated.
TEXTS = 10_000
# The model alone computes the batches of so many rows.
ROWS_OF_THE_MODEL = 20_000


def timed(work: Callable[[], Any], rows: int) -> tuple[float, float]:
    """Seconds, and seconds of processor, per row."""
    began, used = time.perf_counter(), sum(os.times()[:2])
    work()
    return (time.perf_counter() - began) / rows, (sum(os.times()[:2]) - used) / rows


def main(arguments: list[str] | None = None) -> None:
    """Parses the arguments and measures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True, help="directory of Hugging Face")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(arguments)
    model = bert_jax.load(options.model, "classification", labels=["no", "yes"])
    predictor = LabelPredictor(model, PredictOptions().batches())
    texts = uneven_texts(TEXTS, words=SHORT)
    batches: list[Any] = [
        batch.arrays
        for batch in make_batches(
            predictor,
            itertools.islice(itertools.cycle(texts), ROWS_OF_THE_MODEL),
            model.tokenizer,
            limit=model.config.max_length,
        )
    ]

    def compute() -> None:
        jax.block_until_ready([predictor.compute(batch) for batch in batches])

    def no_compute(self: Any, batch: dict[str, jax.Array]) -> np.ndarray:
        return np.zeros((len(batch["input_ids"]), 2), np.float32)

    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "rows.txt")
        with source.open("w", encoding="utf-8") as file:
            file.writelines(
                f"{text}\n" for text in itertools.islice(itertools.cycle(texts), options.rows)
            )

        def whole() -> None:
            target = Path(folder, "predictions.jsonl")
            predict(model, None, source, target, PredictOptions(progress=False))
            target.unlink()

        def host() -> None:
            with mock.patch.object(LabelPredictor, "compute", no_compute):
                whole()

        works = {
            "whole": (whole, options.rows),
            "host alone": (host, options.rows),
            "model alone": (compute, ROWS_OF_THE_MODEL),
        }
        whole()  # compiles
        compute()
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in works}
        for _ in range(options.rounds):
            for name, (work, rows) in works.items():
                found[name].append(timed(work, rows))
    cores = len(os.sched_getaffinity(0))
    print(table(found))
    whole_s, host_s, model_s = ([seconds for seconds, _ in found[name]] for name in works)
    host_used, model_used = (
        [used for _, used in found[name]] for name in ("host alone", "model alone")
    )
    slower = list(map(max, host_s, model_s))
    of_cores = [(one + other) / cores for one, other in zip(host_used, model_used, strict=True)]
    least = list(map(max, slower, of_cores))
    print(f"rate of the whole / of the slower: {with_spread(ratios(whole_s, slower))}")
    print(
        f"rate of the whole / of what {cores} cores can do: {with_spread(ratios(whole_s, least))}"
    )


def table(found: dict[str, list[tuple[float, float]]]) -> str:
    """The medians of each work."""
    rows = []
    for name, pairs in found.items():
        seconds, used = map(statistics.median, zip(*pairs, strict=True))
        rows.append([name, f"{1 / seconds:,.0f}", f"{1e6 * seconds:.0f}", f"{1e6 * used:.0f}"])
    return markdown(["", "rows per second", "µs a row", "µs of processor"], rows)


if __name__ == "__main__":
    main()
