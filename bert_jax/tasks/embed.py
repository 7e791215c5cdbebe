"""One vector for each text (paper, section 5.3)."""

import dataclasses
import functools
import re
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.data.examples import Text
from bert_jax.models.encoder import Encoder
from bert_jax.models.encoder_with_head import apply_model, model_inputs
from bert_jax.models.heads.text_vectors import TEXT_VECTORS, TextPooling, TextVectors
from bert_jax.models.layers import l2_normalize
from bert_jax.process import say
from bert_jax.tasks.base.predict_spec import TEXTS, PredictSpec, TextPredictOptions
from bert_jax.tasks.base.predictor import BatchOptions, Model, check_finite, encoder_of
from bert_jax.tasks.base.text_rows import TextPredictor
from bert_jax.tokenization import Encoding, Tokenizer


@dataclasses.dataclass(frozen=True)
class EmbedPredictOptions(TextPredictOptions):
    """The options of `bert-jax predict` for vectors.

    Attributes:
        pooling: one or more of `POOLINGS`, as "mean" or "cls,max"; None: as the model's files say.
        normalize: whether vectors are scaled to length 1; None: as the model's files say.
        prompt: name of a prompt of the model, or a text, which is put before each text; None: the
            model's default prompt.
    """

    pooling: str | None = None
    normalize: bool | None = None
    prompt: str | None = None


@dataclasses.dataclass(frozen=True)
class TextPreparation:
    """What is done to a text before it is tokenised.

    Attributes:
        vectors: how vectors are made.
        prompt: text that is put before a text, in a pair before the first.
        tokenizer: tokenizer of the model.
    """

    vectors: TextVectors
    prompt: str
    tokenizer: Tokenizer

    def __call__(self, text: Text) -> Text:
        if isinstance(text, str):
            return self._lower(self.prompt + text)
        return self._lower(self.prompt + text[0]), self._lower(text[1])

    def prompt_length(self, limit: int) -> int:
        """The number of first tokens that do not count, as sentence-transformers finds it."""
        if self.vectors.include_prompt or not self.prompt:
            return 0
        (encoding,) = self.tokenizer.encode_batch([self._lower(self.prompt)], max_length=limit)
        return len(encoding) - (encoding.ids[-1] in self.tokenizer.special_ids.known())

    def _lower(self, text: str) -> str:
        """The text, with `lower_case` in small letters, special tokens excepted.

        Each character alone, as in the normaliser of `tokenizers`: no final sigma.
        """
        if not self.vectors.lower_case:
            return text
        names = map(self.tokenizer.id_to_token, self.tokenizer.special_ids.known())
        parts = re.split(f"({'|'.join(map(re.escape, names))})", text)
        parts[::2] = ["".join(map(str.lower, part)) for part in parts[::2]]
        return "".join(parts)


def stored_length(description: ModelDescription, tokenizer: Tokenizer) -> int | None:
    """The number of tokens that a model's files give for vectors; None: none.

    As in sentence-transformers, its own limit replaces the tokenizer's.
    """
    own = description.vectors.max_length
    return tokenizer.model_max_length if own is None else own


class EmbeddingPredictor(TextPredictor[np.ndarray]):
    """The vector of a text, float32 [X].

    Attributes:
        vectors: how it is made.
        width: X.
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
        self.vectors = model.description.vectors.chosen(pooling, normalize)
        self.width = self.vectors.width(model.config.hidden_size)
        prepare = TextPreparation(self.vectors, self.vectors.prompt(prompt), model.tokenizer)
        super().__init__(model, options, prepare=prepare)
        self._normalize = bool(normalize)
        if pooling is None and model.description.stored_vectors is None:
            say_default(",".join(self.vectors.poolings))
        self._pool = self.vectors.pool(prepare.prompt_length(self.limit))
        encoder, params = encoder_of(model, with_pooler=not self.vectors.pools_tokens)
        self._encoder = encoder
        self._params = params, model.compute_params.get(TEXT_VECTORS, {})

    @property
    def stored_length(self) -> int | None:
        return stored_length(self.model.description, self.model.tokenizer)

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


@functools.cache
def say_default(pooling: str) -> None:
    """Says, once in a process, which pooling models have that do not store one."""
    say(f"the model has no modules.json: vectors have the pooling {pooling} unless you name one")


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
    """A batch → float32 [B, X]."""
    output = apply_model(encoder, params[0], model_inputs(batch))
    mask = batch["attention_mask"].astype(bool)
    inputs = output.last_hidden_state, mask, output.pooler_output
    vectors: Any = pool.apply({"params": params[1]}, *inputs)
    vectors = vectors[:, :width]
    return l2_normalize(vectors) if normalize else vectors


PREDICT = PredictSpec(
    TEXTS,
    EmbedPredictOptions,
    lambda model, options: EmbeddingPredictor(
        model,
        options.batches,
        pooling=options.pooling,
        normalize=options.normalize,
        prompt=options.prompt,
    ),
    lambda text, vector: {"embedding": vector},
)
