"""How alike the two texts of each row are."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from bert_jax.data.readers.rows import Row, Rows, open_rows
from bert_jax.errors import UserError
from bert_jax.inference.interface import Advance
from bert_jax.inference.model import LoadedModel
from bert_jax.inference.records import shortest
from bert_jax.tasks.base.predict_options import PredictOptions
from bert_jax.tasks.base.predictor import JSONL, PredictionTask, json_lines, text_options
from bert_jax.tasks.similarity.decoding import similarities

Pair = tuple[str, str]


@contextlib.contextmanager
def _open_pairs(source: str | Path, options: PredictOptions) -> Iterator[Rows[Pair]]:
    def pairs(rows: Rows[str | Pair]) -> Iterator[Row[Pair]]:
        for row in rows:
            if isinstance(row.item, str):
                raise UserError(
                    f"{row.place}: one text, but likeness is that of two; say with "
                    "data.text_column and data.pair_column where they are"
                )
            yield Row(row.item, row.other, row.place, row.id, row.gold)

    with open_rows(source, text_options(options)) as rows:
        yield Rows(pairs(rows), rows.fraction)


def _answers(
    model: LoadedModel, pairs: Iterator[Pair], options: PredictOptions, advance: Advance
) -> Iterator[float]:
    return similarities(
        model,
        pairs,
        pooling=options.pooling,
        batch_size=options.batch_size or 32,
        max_length=options.max_length,
        advance=advance,
    )


TASK = PredictionTask(
    _open_pairs, _answers, {JSONL: json_lines(lambda pair, found: {"similarity": shortest(found)})}
)
