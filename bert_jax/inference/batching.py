"""Examples of an input of any length to padded batches of rows of like length."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np

from bert_jax.data.padding import bucket_length, bucket_rows
from bert_jax.tasks.base.predictor import PredictionBatch, Predictor, Request
from bert_jax.tokenization import Encoding, Tokenizer

Example = TypeVar("Example")

# However long the texts are, a window of them with their encodings stays below some 100 MB.
WINDOW_CHARACTERS = 1_000_000


def make_batches(
    predictor: Predictor[Example, object],
    examples: Iterable[Example],
    tokenizer: Tokenizer,
    *,
    limit: int,
    row_multiple: int = 1,
) -> Iterator[PredictionBatch[Example]]:
    """Batches of rows of like length, the longest of each window first.

    Reads no further than one window. T and B take few values (`data.padding`), so a function under
    jit is compiled for few shapes.

    Args:
        predictor: encodes examples; its options are the sizes.
        examples: read once.
        tokenizer: of the model.
        limit: the most tokens of a row.
        row_multiple: a divisor of B: the number of devices that share the rows.
    """
    options = predictor.options
    number = 0
    for window in _windows(predictor, examples):
        requests = [
            Request(number + place, example, encodings)
            for place, (example, encodings) in enumerate(
                zip(window, predictor.encode(window), strict=True)
            )
        ]
        number += len(window)
        rows = [(request, row) for request in requests for row in range(len(request.encodings))]
        # Sorting is stable: equal lengths stay in the order of the input.
        rows.sort(key=lambda of: -len(of[0].encodings[of[1]]))
        for start in range(0, len(rows), options.batch_size):
            chosen = rows[start : start + options.batch_size]
            encodings = [request.encodings[row] for request, row in chosen]
            count = bucket_rows(len(encodings), options.batch_size, row_multiple)
            length = bucket_length(len(encodings[0]), limit)
            yield PredictionBatch(chosen, pad(encodings, count, length, tokenizer))


def pad(
    encodings: Sequence[Encoding], rows: int, length: int, tokenizer: Tokenizer
) -> dict[str, np.ndarray]:
    """`input_ids`, `token_type_ids`, `attention_mask`, int32 [rows, length]; padding is masked."""
    input_ids = np.full((rows, length), tokenizer.special_ids.pad, np.int32)
    token_type_ids = np.zeros((rows, length), np.int32)
    attention_mask = np.zeros((rows, length), np.int32)
    for row, encoding in enumerate(encodings):
        input_ids[row, : len(encoding)] = encoding.ids
        token_type_ids[row, : len(encoding)] = encoding.type_ids
        attention_mask[row, : len(encoding)] = 1
    return {
        "input_ids": input_ids,
        "token_type_ids": token_type_ids,
        "attention_mask": attention_mask,
    }


def _windows(
    predictor: Predictor[Example, object], examples: Iterable[Example]
) -> Iterator[list[Example]]:
    most = predictor.options.batch_size * predictor.options.window
    window: list[Example] = []
    length = 0
    for example in examples:
        window.append(example)
        length += predictor.characters(example)
        if len(window) == most or length >= WINDOW_CHARACTERS:
            yield window
            window, length = [], 0
    if window:
        yield window
