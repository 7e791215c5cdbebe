"""Words for the masks of texts, by the masked-language-model head (paper, section 3.1)."""

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import flax.linen as nn
import jax
import numpy as np

from bert_jax.data.examples import Text
from bert_jax.data.outputs import float32_repr
from bert_jax.data.pipeline import Batch
from bert_jax.errors import OptionError, require_at_least
from bert_jax.models.encoder_with_head import apply_model, model_inputs
from bert_jax.models.head import heads_with
from bert_jax.models.heads.pretraining import PreTrainingOutput
from bert_jax.tasks.base.predict_spec import TEXTS, PredictSpec, TextPredictOptions
from bert_jax.tasks.base.predictor import (
    EncodedExample,
    ExampleError,
    Model,
    check_finite,
    check_head,
)
from bert_jax.tasks.base.text_rows import TextPredictor, too_long
from bert_jax.tokenization import Encoding, Tokenizer

# The least numbers of words, and of masks of a text that has several, in a program.
_LEAST_WORDS, _LEAST_MASKS = 32, 8


@dataclasses.dataclass(frozen=True)
class FillMaskPredictOptions(TextPredictOptions):
    """The options of `bert-jax predict`.

    Attributes:
        top_k: number of words for each mask, at most V.
        targets: the only pieces that are proposed, or words that are one piece; their probabilities
            are those among all pieces. Empty: all.
    """

    top_k: int = 5
    targets: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least("top_k", self.top_k, 1)

    def shared(self) -> Self:
        """With the largest number that is computed by the same program: few programs."""
        most = max(_LEAST_WORDS, 1 << (self.top_k - 1).bit_length())
        return dataclasses.replace(self, top_k=most)


@dataclasses.dataclass(frozen=True)
class MaskPrediction:
    """One word that the model proposes for a mask.

    Attributes:
        token: the piece as in the vocabulary.
        token_id: id of the piece.
        score: probability of the piece.
        text: the decoded text with this mask replaced; other masks stay.
    """

    token: str
    token_id: int
    score: float
    text: str


class MaskPredictor(TextPredictor[list[list[MaskPrediction]]]):
    """The most probable pieces for each mask of a text, the best first.

    The other masks of the text are kept, as in training.
    """

    def __init__(self, model: Model, options: FillMaskPredictOptions) -> None:
        """Without `max_length`, longer texts are refused: a cut could remove a mask.

        Raises:
            UserError: the model has no masked-language-model head, or a target is no piece.
        """
        check_head(model, PREDICT.heads, "fill masks")
        super().__init__(model, options, refusal=None if options.max_length else too_long)
        self._tokenizer = model.tokenizer
        self._mask = model.tokenizer.special_id("mask", "fill_mask")
        chosen = [_target_id(model.tokenizer, target) for target in options.targets]
        self._targets = np.array([*dict.fromkeys(chosen)], np.int32) if chosen else None
        known = model.tokenizer.vocab_size if self._targets is None else len(self._targets)
        self._computed = min(options.shared().top_k, known)

    def encode(self, examples: Sequence[Text]) -> Sequence[EncodedExample | ExampleError]:
        return [
            self._without_mask(text)
            if isinstance(encoded, EncodedExample) and self._mask not in encoded.rows[0].ids
            else encoded
            for text, encoded in zip(examples, super().encode(examples), strict=True)
        ]

    def _without_mask(self, text: Text) -> ExampleError:
        return ExampleError(
            f"the text has no {self._tokenizer.id_to_token(self._mask)}: {text!r:.80}"
        )

    def inputs(self, arrays: Batch, rows: Mapping[int, Encoding]) -> Batch:
        """With `masked_lm_positions`, int32 [B, P], P 1, 8, 16, 32, …; unused ones are 0."""
        masks = {row: _masks(encoding, self._mask) for row, encoding in rows.items()}
        most = max(map(len, masks.values()), default=1)
        count = 1 if most == 1 else max(_LEAST_MASKS, 1 << (most - 1).bit_length())
        positions = np.zeros((len(arrays["input_ids"]), count), np.int32)
        for row, mask_positions in masks.items():
            positions[row, : len(mask_positions)] = mask_positions
        return {**arrays, "masked_lm_positions": positions}

    def warm_up_inputs(self, arrays: Batch) -> Iterator[Batch]:
        """Those of texts with up to 8 masks."""
        for count in (1, _LEAST_MASKS):
            positions = np.zeros((len(arrays["input_ids"]), count), np.int32)
            yield {**arrays, "masked_lm_positions": positions}

    def compute(self, batch: dict[str, jax.Array]) -> Any:
        return _best_words(
            self.model.compute_params,
            batch,
            self._targets,
            module=self.model.module,
            vocab_size=self._tokenizer.vocab_size,
            top_k=self._computed,
        )

    def decode(
        self, example: Text, encoded: EncodedExample, outputs: list[Any]
    ) -> list[list[MaskPrediction]]:
        request: Any = encoded.request or self.options
        best = [tuple(each[:, : request.top_k] for each in output) for output in outputs]
        return super().decode(example, encoded, best)

    def decode_row(
        self, encoding: Encoding, output: tuple[np.ndarray, np.ndarray]
    ) -> list[list[MaskPrediction]]:
        check_finite(output[0], "the scores of words for a mask")
        return [
            [
                _mask_prediction(self._tokenizer, encoding, position, int(word), float(score))
                for score, word in zip(*candidates, strict=True)
            ]
            for position, *candidates in zip(_masks(encoding, self._mask), *output, strict=False)
        ]


def _target_id(tokenizer: Tokenizer, target: str) -> int:
    """The id of a piece, or of the only piece of a word."""
    token_id = tokenizer.token_to_id(target)
    if token_id is None:
        (encoding,) = tokenizer.encode_batch([target], add_special_tokens=False)
        if len(encoding) != 1 or encoding.ids[0] == tokenizer.special_ids.unk:
            rule = "give words that are one piece of the vocabulary"
            raise OptionError("targets", target, rule)
        (token_id,) = encoding.ids
    return token_id


def _masks(encoding: Encoding, mask: int) -> list[int]:
    """The positions of the masks in a row."""
    return [position for position, token in enumerate(encoding.ids) if token == mask]


def _mask_prediction(
    tokenizer: Tokenizer, encoding: Encoding, position: int, word: int, score: float
) -> MaskPrediction:
    filled = [*encoding.ids[:position], word, *encoding.ids[position + 1 :]]
    single = encoding.ids.count(encoding.ids[position]) == 1
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
    targets: jax.Array | None,
    *,
    module: nn.Module,
    vocab_size: int,
    top_k: int,
) -> tuple[jax.Array, jax.Array]:
    """Probabilities, float32 [B, P, top_k], and ids, int32 [B, P, top_k], of the best words."""
    output: Any = apply_model(module, params, model_inputs(batch))
    logits = output.prediction_logits if isinstance(output, PreTrainingOutput) else output
    # Models may have more rows than the tokenizer has words.
    probabilities = jax.nn.softmax(logits[..., :vocab_size], axis=-1)
    if targets is not None:
        probabilities = probabilities[..., targets]
    best, words = jax.lax.top_k(probabilities, top_k)
    return best, words if targets is None else targets[words]


def to_record(text: Text, masks: list[list[MaskPrediction]]) -> Mapping[str, Any]:
    """The best words for each mask of a text, as the fields of a JSON line."""
    return {
        "fillings": [
            [{**dataclasses.asdict(word), "score": float32_repr(word.score)} for word in mask]
            for mask in masks
        ]
    }


PREDICT = PredictSpec(
    TEXTS, FillMaskPredictOptions, MaskPredictor, to_record, heads=heads_with("fills_masks")
)
