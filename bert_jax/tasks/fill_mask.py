"""Words for the masks of texts, by the masked-language-model head (paper, section 3.1)."""

import dataclasses
import functools
from collections.abc import Iterable, Iterator
from typing import Any

import flax.linen as nn
import jax
import numpy as np

from bert_jax.errors import UserError
from bert_jax.inference.batching import Batch, BatchOptions
from bert_jax.inference.finite import finite
from bert_jax.inference.interface import Advance, Model, Text, TextError
from bert_jax.inference.texts import text_answers
from bert_jax.models.architectures import PreTrainingOutput
from bert_jax.tokenization import Encoding, Tokenizer


@dataclasses.dataclass(frozen=True)
class MaskPrediction:
    """One word that the model proposes for a mask.

    Attributes:
        token: the piece, as it stands in the vocabulary.
        token_id: its id.
        score: its probability.
        text: the text with the mask replaced, decoded; other masks stay.
    """

    token: str
    token_id: int
    score: float
    text: str


def fillings(
    model: Model,
    texts: Iterable[Text],
    *,
    top_k: int = 5,
    batch_size: int = 32,
    max_length: int | None = None,
    advance: Advance | None = None,
) -> Iterator[list[list[MaskPrediction]]]:
    """For each text, for each of its masks: the most probable pieces, the best first.

    Every mask is filled with the others in place, as the model was trained. Reads an iterator of
    texts and answers in the same order, in constant memory.

    Args:
        model: has the masked-language-model head.
        texts: each with at least one mask.
        top_k: how many proposals; at most V.
        batch_size: the most texts computed together.
        max_length: longer texts are cut to so many tokens; None: they are refused, since the cut
            could take a mask away.
        advance: told the number of texts after each batch.

    Raises:
        NotFiniteError: a score is NaN.
        UserError: the model has no such head, `top_k` is below 1, a text has no mask, or is longer
            than the position table.
    """
    if "mlm_head" not in model.params:
        raise UserError(
            f"this {model.description.architecture} has no masked-language-model head; give the "
            'directory of a model that has one, and load it with load(path, task="masked_lm")'
        )
    if top_k < 1:
        raise UserError(f"top_k is {top_k}; it must be at least 1")
    tokenizer = model.tokenizer

    def read(encoding: Encoding, best: tuple[np.ndarray, np.ndarray]) -> list[list[MaskPrediction]]:
        finite(best[0], "the scores of words for a mask")
        return [
            [
                _filling(tokenizer, encoding, position, int(word), float(score))
                for score, word in zip(*of_mask, strict=True)
            ]
            for position, *of_mask in zip(_masks(encoding, tokenizer), *best, strict=False)
        ]

    return text_answers(
        model,
        texts,
        functools.partial(
            _best_words,
            model.params,
            module=model.module,
            vocab_size=tokenizer.vocab_size,
            top_k=min(top_k, tokenizer.vocab_size),
        ),
        read,
        BatchOptions(batch_size, max_length, refuse_long=max_length is None),
        inputs=functools.partial(_with_positions, tokenizer=tokenizer),
        advance=advance,
    )


def _masks(encoding: Encoding, tokenizer: Tokenizer) -> list[int]:
    """Positions of the masks."""
    mask = tokenizer.special_ids.mask
    return [position for position, token in enumerate(encoding.ids) if token == mask]


def _with_positions(batch: Batch[Text], tokenizer: Tokenizer) -> dict[str, np.ndarray]:
    """The batch with `masked_lm_positions`, int32 [B, P], P a power of two; unused ones are 0.

    Raises:
        TextError: a text has no mask.
    """
    found = [_masks(encoding, tokenizer) for encoding in batch.encodings]
    for (asked, _), masks in zip(batch.rows, found, strict=True):
        if not masks:
            mask = tokenizer.id_to_token(tokenizer.special_ids.mask)
            raise TextError(f"the text has no {mask}: {asked.item!r:.80}", asked.number)
    most = 1 << (max(map(len, found)) - 1).bit_length()
    positions = np.zeros((len(batch.arrays["input_ids"]), most), np.int32)
    for row, masks in enumerate(found):
        positions[row, : len(masks)] = masks
    return {**batch.arrays, "masked_lm_positions": positions}


def _filling(
    tokenizer: Tokenizer, encoding: Encoding, position: int, word: int, score: float
) -> MaskPrediction:
    filled = [*encoding.ids[:position], word, *encoding.ids[position + 1 :]]
    single = encoding.ids.count(tokenizer.special_ids.mask) == 1
    if not single:
        # The other masks are special tokens too, but stay visible.
        added = encoding.special_tokens_mask
        filled = [token for token, special in zip(filled, added, strict=True) if not special]
    return MaskPrediction(
        token=tokenizer.id_to_token(word),
        token_id=word,
        score=score,
        text=tokenizer.decode(filled, skip_special_tokens=single),
    )


@functools.partial(jax.jit, static_argnames=("module", "vocab_size", "top_k"))
def _best_words(
    params: Any,
    batch: dict[str, jax.Array],
    *,
    module: nn.Module,
    vocab_size: int,
    top_k: int,
) -> tuple[jax.Array, jax.Array]:
    """Probabilities, float32 [B, P, K], and ids, int32 [B, P, K], of the K best words."""
    output: Any = module.apply(
        {"params": params},
        batch["input_ids"],
        batch["token_type_ids"],
        batch["attention_mask"],
        masked_lm_positions=batch["masked_lm_positions"],
    )
    logits = output.prediction_logits if isinstance(output, PreTrainingOutput) else output
    # Models may have more rows than the tokenizer has words.
    probabilities = jax.nn.softmax(logits[..., :vocab_size], axis=-1)
    best, words = jax.lax.top_k(probabilities, top_k)
    return best, words
