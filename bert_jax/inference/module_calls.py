"""What a call of a model's Linen module takes, and the scores of its next-sentence head."""

from collections.abc import Iterable

import numpy as np

from bert_jax.data.examples import Pair, Text
from bert_jax.data.padding import pad
from bert_jax.inference.engine import predict_examples
from bert_jax.tasks.base.predictor import BatchOptions, ExampleError, Model, not_one_string
from bert_jax.tasks.base.text_rows import TextEncoder
from bert_jax.tasks.next_sentence import NextSentencePredictor


def inputs(
    model: Model, texts: Iterable[Text], *, max_length: int | None = None
) -> dict[str, np.ndarray]:
    """The rows of some texts, padded to the longest: what the module takes by name.

    As in `model.module.apply({"params": model.params}, **model.inputs(texts))`.

    Args:
        model: the model.
        texts: strings, or pairs of strings.
        max_length: maximum number of tokens of a text; longer ones are cut.

    Returns:
        `input_ids`, `token_type_ids` and `attention_mask`, int32 [B, T]; the mask is 0 for padding.
        Those of an encoder-decoder are its encoder's.

    Raises:
        UserError: there are no texts, or an element is not a text.
    """
    limit = BatchOptions(max_length=max_length).limit(
        model.config, model.tokenizer.model_max_length
    )
    encodings = {}
    for row, encoded in enumerate(
        TextEncoder(model.tokenizer, model.config, limit)([*not_one_string(texts)])
    ):
        if isinstance(encoded, ExampleError):
            raise ExampleError(encoded.message, row)
        encodings[row] = encoded.rows[0]
    if not encodings:
        raise ExampleError("there are no texts; give one or several")
    length = max(map(len, encodings.values()))
    return pad(encodings, len(encodings), length, model.tokenizer)


def next_sentence(
    model: Model, pairs: Iterable[Pair], *, batch_size: int = 32, max_length: int | None = None
) -> np.ndarray:
    """The probability that the second text of each pair follows the first, float32 [B].

    By BERT's next-sentence head, or ALBERT's of sentence order.

    Raises:
        UserError: the model has no such head, or an element is not a pair of strings.
    """
    predictor = NextSentencePredictor(model, BatchOptions(batch_size, max_length))
    return np.array([*predict_examples(predictor, not_one_string(pairs))], np.float32)
