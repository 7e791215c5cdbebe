"""One vector for each text (paper, section 5.3)."""

import dataclasses
import functools
import string
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.data.readers.texts import Text
from bert_jax.errors import UserError
from bert_jax.models.encoder import Encoder
from bert_jax.models.layers import l2_normalize
from bert_jax.models.text_vectors import TEXT_VECTORS, TextPooling, TextVectors
from bert_jax.tasks.base.predict_spec import (
    JSONL,
    PredictOptions,
    PredictSpec,
    json_lines,
    open_texts,
)
from bert_jax.tasks.base.predictor import (
    BatchOptions,
    Model,
    apply_encoder,
    check_finite,
    encoder_of,
)
from bert_jax.tasks.base.text_rows import TextPredictor, with_prompt
from bert_jax.tokenization import Encoding, Tokenizer


class EmbeddingPredictor(TextPredictor[np.ndarray]):
    """The vector of a text, float32 [D].

    Attributes:
        vectors: how it is made.
        width: D.
    """

    def __init__(
        self,
        model: Model,
        options: BatchOptions,
        *,
        pooling: str | Sequence[str] | None = None,
        normalize: bool | None = None,
        prompt: str | None = None,
    ) -> None:
        """For arguments see `LoadedModel.embed`.

        Raises:
            OptionError: the pooling or the prompt is unknown, or the model has no pooler.
        """
        super().__init__(model, options)
        self.vectors = model.description.vectors.chosen(pooling, normalize)
        self.width = self.vectors.width(model.config.hidden_size)
        self._prompt = self.vectors.prompt(prompt)
        self._normalize = bool(normalize)
        self._pool = self.vectors.pool(
            prompt_length(self.vectors, self._prompt, model.tokenizer, self.limit)
        )
        check_lower_case(self.vectors, model.tokenizer)
        encoder, params = encoder_of(model, with_pooler=not self.vectors.of_tokens)
        self._encoder = encoder
        self._params = params, model.compute_params.get(TEXT_VECTORS, {})

    @property
    def stored_length(self) -> int | None:
        return stored_length(self.model.description, self.model.tokenizer)

    def encode(self, examples: Sequence[Text]) -> list[list[Encoding]]:
        return super().encode([with_prompt(self._prompt, text) for text in examples])

    def compute(self, batch: dict[str, jax.Array]) -> jax.Array:
        return _vectors(
            self._params,
            batch,
            encoder=self._encoder,
            pool=self._pool,
            width=self.width,
            normalize=self._normalize,
        )

    def decode_row(self, encoding: Encoding, output: np.ndarray) -> np.ndarray:
        return check_finite(output.copy(), "the vectors of a text")


@functools.partial(jax.jit, static_argnames=("encoder", "pool", "width", "normalize"))
def _vectors(
    params: tuple[Any, Any],
    batch: dict[str, jax.Array],
    *,
    encoder: Encoder,
    pool: TextPooling,
    width: int,
    normalize: bool,
) -> jax.Array:
    """A batch → float32 [B, D]."""
    output = apply_encoder(encoder, params[0], batch)
    mask = batch["attention_mask"].astype(bool)
    inputs = output.last_hidden_state, mask, output.pooler_output
    vectors: Any = pool.apply({"params": params[1]}, *inputs)
    vectors = vectors[:, :width]
    return l2_normalize(vectors) if normalize else vectors


def prompt_length(vectors: TextVectors, prompt: str, tokenizer: Tokenizer, limit: int) -> int:
    """The number of first tokens that the pooling leaves out, as sentence-transformers counts."""
    if vectors.include_prompt or not prompt:
        return 0
    (encoding,) = tokenizer.encode_batch([prompt], max_length=limit)
    ends_special = encoding.ids[-1] in dataclasses.astuple(tokenizer.special_ids)
    return len(encoding) - ends_special


def stored_length(description: ModelDescription, tokenizer: Tokenizer) -> int | None:
    """The number of tokens that a model's files give for vectors; None: none.

    As in sentence-transformers, its own limit replaces the tokenizer's.
    """
    own = description.vectors.max_length
    return tokenizer.model_max_length if own is None else own


def check_lower_case(vectors: TextVectors, tokenizer: Tokenizer) -> None:
    """Raises UserError if texts must be lower-cased, and the tokenizer does not do it."""
    if not vectors.lower_case:
        return
    letters = " ".join(string.ascii_uppercase)
    upper, lower = tokenizer.encode_batch([letters, letters.lower()])
    if list(upper.ids) != list(lower.ids):
        raise UserError(
            "sentence_bert_config.json: do_lower_case is true, and the model's tokenizer keeps "
            "capital letters; set do_lower_case in tokenizer_config.json"
        )


def _predictor(model: Model, options: PredictOptions) -> EmbeddingPredictor:
    return EmbeddingPredictor(
        model,
        options.batches(),
        pooling=options.pooling,
        normalize=options.normalize,
        prompt=options.prompt,
    )


PREDICT = PredictSpec(
    open_texts,
    _predictor,
    {JSONL: json_lines(lambda text, vector: {"embedding": vector})},
    options=("pooling", "normalize", "prompt"),
)
