"""Whether a text follows another: BERT's next sentence (paper, section 3.1), ALBERT's order."""

import functools
from collections.abc import Sequence
from typing import Any

import flax.linen as nn
import jax
import numpy as np

from bert_jax.data.examples import Text
from bert_jax.data.outputs import float32_repr
from bert_jax.models.encoder_with_head import apply_model, model_inputs
from bert_jax.tasks.base.predict_spec import TEXTS, PredictSpec, TextPredictOptions
from bert_jax.tasks.base.predictor import (
    BatchOptions,
    EncodedExample,
    ExampleError,
    Model,
    check_finite,
    check_head,
)
from bert_jax.tasks.base.text_rows import TextPredictor
from bert_jax.tokenization import Encoding


class NextSentencePredictor(TextPredictor[float]):
    """The probability that the second text of a pair follows the first."""

    def __init__(self, model: Model, options: BatchOptions) -> None:
        """For arguments see `LoadedModel.next_sentence`.

        Raises:
            UserError: the model has no next-sentence head.
        """
        check_head(model, PREDICT.heads, "compare a text with its next one")
        super().__init__(model, options)

    def encode(self, examples: Sequence[Text]) -> Sequence[EncodedExample | ExampleError]:
        return [
            ExampleError(f"{text!r:.80} is one text; give a pair, a text and the one after it")
            if isinstance(text, str)
            else encoded
            for text, encoded in zip(examples, super().encode(examples), strict=True)
        ]

    def compute(self, batch: dict[str, jax.Array]) -> jax.Array:
        return _probabilities(self.model.compute_params, batch, module=self.model.module)

    def decode_row(self, encoding: Encoding, output: np.ndarray) -> float:
        return float(check_finite(output, "the scores of a pair"))


@functools.partial(jax.jit, static_argnames="module")
def _probabilities(params: Any, batch: dict[str, jax.Array], *, module: nn.Module) -> jax.Array:
    """Float32 [B]; the logits of words, which a model for pre-training has, are not computed."""
    outputs = apply_model(module, params, model_inputs(batch))
    logits = getattr(outputs, "seq_relationship_logits", outputs)
    return jax.nn.softmax(logits, axis=-1)[:, 0]  # class 0: it follows


PREDICT = PredictSpec(
    TEXTS,
    TextPredictOptions,
    NextSentencePredictor,
    lambda text, probability: {"follows": float32_repr(probability)},
    heads=("next_sentence", "pretraining"),
    is_default=False,  # a model for pre-training fills masks
)
