"""One vector for each text (paper, section 5.3)."""

import dataclasses
import functools
import json
import re
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.data.converted_outputs import to_numpy, vectors_to_csv
from bert_jax.data.examples import Example, Text
from bert_jax.data.outputs import Layout, float32_repr, to_json
from bert_jax.errors import require_one_of
from bert_jax.metrics.similarity import units
from bert_jax.models.encoder import Encoder
from bert_jax.models.encoder_with_head import apply_model, model_inputs
from bert_jax.models.heads.text_vectors import TextPooling
from bert_jax.models.vectors import SIDES, TEXT_VECTORS, StoredVectors
from bert_jax.process import say
from bert_jax.sharding.hosts import is_main_host
from bert_jax.tasks.base.encoder_layers import encoder_of
from bert_jax.tasks.base.predict_spec import (
    TEXTS,
    OutputFile,
    PredictOptions,
    PredictSpec,
    TextPredictOptions,
)
from bert_jax.tasks.base.predictor import Model, check_finite
from bert_jax.tasks.base.text_rows import TextPredictor
from bert_jax.tokenization import Encoding, Tokenizer


@dataclasses.dataclass(frozen=True)
class VectorPredictOptions(TextPredictOptions):
    """The options of `bert-jax predict` for what is made of vectors.

    Attributes:
        pooling: one or more of `POOLINGS`, as "mean" or "cls,max"; None: as the model's files say.
        prompt: name of a prompt of the model, or a text, which is put before each text; None: the
            model's default prompt.
    """

    pooling: str | Sequence[str] | None = None
    prompt: str | None = None


@dataclasses.dataclass(frozen=True)
class EmbedPredictOptions(VectorPredictOptions):
    """The options of `bert-jax predict` for vectors.

    Attributes:
        normalize: whether vectors are scaled to length 1; None: as the model's files say.
        side: "query" or "document", the kind of the texts, see `LoadedModel.embed`; None: none.
    """

    side: str | None = None
    normalize: bool | None = None


@dataclasses.dataclass(frozen=True)
class TextPreparation:
    """What is done to a text before it is tokenised.

    Attributes:
        vectors: how vectors are made.
        prompt: text that is put before a text, in a pair before the first.
        tokenizer: tokenizer of the model.
    """

    vectors: StoredVectors
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
    vectors = description.stored_vectors
    own = None if vectors is None else vectors.max_length
    return tokenizer.model_max_length if own is None else own


class EmbeddingPredictor(TextPredictor[np.ndarray]):
    """The vector of a text, float32 [X].

    Attributes:
        vectors: how it is made.
        width: X.
    """

    def __init__(self, model: Model, options: EmbedPredictOptions) -> None:
        """Resolves the options.

        Raises:
            OptionError: the pooling, the prompt or the side is unknown, or the model has no pooler.
        """
        pooling, prompt, side = options.pooling, options.prompt, options.side
        require_one_of("side", side, (None, *SIDES))
        if side is not None:
            model = model.side_model(side)
            prompt = model.description.vectors.prompt_name(side) if prompt is None else prompt
        self.vectors = model.description.vectors.chosen(pooling, options.normalize)
        self.width = self.vectors.width(model.config.hidden_size)
        prepare = TextPreparation(self.vectors, self.vectors.prompt(prompt), model.tokenizer)
        super().__init__(model, options, prepare=prepare)
        # Both are done on the host: one program computes vectors with any options.
        self._normalize = bool(options.normalize)
        if pooling is None and model.description.stored_vectors is None and is_main_host():
            say_default(",".join(self.vectors.poolings))
        any_length = model.description.vectors.chosen(pooling, normalize=False)
        any_length = dataclasses.replace(any_length, truncate_dim=None)
        self._pool = any_length.pool(prepare.prompt_length(self.limit))
        encoder, params = encoder_of(model, with_pooler=not self.vectors.pools_tokens)
        self._encoder = encoder
        self._params = params, model.compute_params.get(TEXT_VECTORS, {})

    @property
    def stored_length(self) -> int | None:
        return stored_length(self.model.description, self.model.tokenizer)

    def compute(self, batch: dict[str, jax.Array]) -> jax.Array:
        return _vectors(self._params, batch, encoder=self._encoder, pool=self._pool)

    def decode_row(self, encoding: Encoding, output: np.ndarray) -> np.ndarray:
        return check_finite(self.vector(output), "the vectors of a text")

    def vector(self, output: np.ndarray) -> np.ndarray:
        """The vector from a row of the result of `compute`."""
        vector = (units(output) if self.vectors.ends_in_normalize else output)[: self.width]
        return units(vector) if self._normalize else vector.copy()


@functools.cache
def say_default(pooling: str) -> None:
    """Says, once in a process, which pooling models have that do not store one."""
    say(f"the model has no modules.json: vectors have the pooling {pooling} unless you name one")


@functools.partial(jax.jit, static_argnames=("encoder", "pool"))
def _vectors(
    params: tuple[Any, Any], batch: dict[str, jax.Array], *, encoder: Encoder, pool: TextPooling
) -> jax.Array:
    """A batch → float32 [B, X], neither scaled to length 1 at the end nor shortened."""
    output = apply_model(encoder, params[0], model_inputs(batch))
    mask = batch["attention_mask"].astype(bool)
    inputs = output.last_hidden_state, mask, output.pooler_output
    vectors: Any = pool.apply({"params": params[1]}, *inputs)
    return vectors


def _numpy(options: PredictOptions) -> Sequence[OutputFile[Text, np.ndarray]]:
    """Vectors as float32 [N, X], and a line of each row's columns in rows_NAME.jsonl beside it."""

    def vector(_: Example[Text], vector: np.ndarray) -> str:
        return json.dumps(list(map(float32_repr, vector))) + "\n"

    def columns(example: Example[Text], vector: np.ndarray) -> str:
        record = PREDICT.record(example, vector, options.keep_columns)
        return to_json({key: value for key, value in record.items() if key != _EMBEDDING}) + "\n"

    beside = Layout("rows", ending=".jsonl")
    return OutputFile(vector, Layout(convert=to_numpy)), OutputFile(columns, beside)


def _variants(description: ModelDescription) -> list[dict[str, str]]:
    """The prompts that do not count have each a program of its own."""
    vectors = description.vectors
    prompts = () if vectors.include_prompt else vectors.all_prompts
    return [{}, *({"prompt": name} for name in prompts)]


def _csv(options: PredictOptions) -> Sequence[OutputFile[Text, np.ndarray]]:
    """A row of each text's columns and the numbers of its vector."""

    def row(example: Example[Text], vector: np.ndarray) -> str:
        return to_json(PREDICT.record(example, vector, options.keep_columns)) + "\n"

    convert = functools.partial(vectors_to_csv, key=_EMBEDDING)
    return (OutputFile(row, Layout(convert=convert)),)


_EMBEDDING, _NUMPY, _CSV = "embedding", "npy", "csv"

PREDICT = PredictSpec(
    TEXTS,
    EmbedPredictOptions,
    EmbeddingPredictor,
    lambda text, vector: {_EMBEDDING: vector},
    formats={_NUMPY: _numpy, _CSV: _csv},
    endings={".npy": _NUMPY, ".csv": _CSV},
    variants=_variants,
)
