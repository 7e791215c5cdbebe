"""How alike the two texts of each row are."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from bert_jax.data.readers.rows import Row, Rows, open_rows
from bert_jax.data.records import shortest
from bert_jax.errors import UserError
from bert_jax.tasks.base.predict_options import PredictOptions
from bert_jax.tasks.base.predict_task import (
    JSONL,
    PredictionTask,
    batch_options,
    json_lines,
    text_options,
)
from bert_jax.tasks.similarity.decoding import PairPredictor, cosine

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


TASK = PredictionTask(
    _open_pairs,
    lambda model, options: PairPredictor(model, batch_options(options), pooling=options.pooling),
    {JSONL: json_lines(lambda pair, vectors: {"similarity": shortest(cosine(vectors))})},
)
