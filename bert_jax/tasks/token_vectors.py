"""A vector for each token of a query or a document (ColBERT, Khattab and Zaharia, 2020)."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.data.examples import Text
from bert_jax.errors import OptionError, UserError, require_one_of
from bert_jax.models.config import ENCODER_SCOPE
from bert_jax.models.dual_encoder import VectorInputs
from bert_jax.models.encoder_with_head import model_inputs
from bert_jax.models.heads.token_vectors import APPEND, FIXED, TokenTowers, TokenVectors
from bert_jax.models.vectors import DOCUMENT, QUERY, SIDES, TEXT_VECTORS
from bert_jax.tasks.base.encoder_layers import encoder_of
from bert_jax.tasks.base.predict_spec import TEXTS, PredictSpec, TextPredictOptions
from bert_jax.tasks.base.predictor import BatchOptions, EncodedExample, Model, check_finite
from bert_jax.tasks.base.short_repr import ShortRepr
from bert_jax.tasks.base.text_rows import TextPredictor
from bert_jax.tasks.embed import TextPreparation
from bert_jax.tokenization import Encoding, Tokenizer


@dataclasses.dataclass(frozen=True)
class TokenVectorsPredictOptions(TextPredictOptions):
    """The options of `bert-jax predict` for vectors of tokens.

    Attributes:
        side: "query" or "document", the kind of the texts.
    """

    side: str = DOCUMENT

    def __post_init__(self) -> None:
        super().__post_init__()
        require_one_of("side", self.side, SIDES)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class TokenVectorsOfText(ShortRepr):
    """The vectors of a text.

    Attributes:
        tokens: the n tokens that count.
        vectors: float32 [n, X].
    """

    tokens: list[str]
    vectors: np.ndarray


class TokenRows:
    """The rows of the texts of a side, as arrays of the encoder.

    Attributes:
        prepare: changes a text before it is tokenised.
    """

    def __init__(self, vectors: TokenVectors, tokenizer: Tokenizer, side: str) -> None:
        """Resolves the tokens that are added, and those that do not count.

        Raises:
            UserError: the tokenizer has no token for the expansion of queries.
        """
        self.prepare = TextPreparation(vectors, vectors.all_prompts[side], tokenizer)
        self._expansion = vectors.expansion if side == QUERY else None
        if self._expansion:
            self._added = _expansion_id(self._expansion.token, tokenizer)
        words = vectors.skipped_words if side in vectors.skipped_sides else ()
        # Words that are no single token of the vocabulary are no tokens of a text either.
        ids = map(tokenizer.token_to_id, words)
        self._skipped = [token_id for token_id in ids if token_id is not None]

    @property
    def is_expanded(self) -> bool:
        """Whether tokens are added to the texts."""
        return self._expansion is not None

    def count(self, encoding: Encoding) -> int:
        """The number of tokens of a row that count, without added ones."""
        return int((~np.isin(encoding.ids, self._skipped)).sum())

    def arrays(self, rows: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The arrays with the added tokens, and `vector_mask`, 1 for the tokens that count.

        Args:
            rows: `input_ids`, `token_type_ids`, `attention_mask`, int32 [..., T], and others.

        Returns:
            The same arrays, int32 [..., S] with S ≥ T, with `vector_mask`. Rows of padding have no
            token that counts.
        """
        mask = rows["attention_mask"]
        if expansion := self._expansion:
            lengths: np.ndarray = mask.sum(axis=-1, keepdims=True)
            ends: np.ndarray | int = expansion.length
            width = max(mask.shape[-1], expansion.length)
            if expansion.strategy == APPEND:
                ends, width = lengths + expansion.length, mask.shape[-1] + expansion.length
            rows = {name: _wider(array, width) for name, array in rows.items()}
            positions = np.arange(width)
            is_added = (positions >= lengths) & (positions < ends) & (lengths > 0)
            rows["input_ids"] = np.where(is_added, self._added, rows["input_ids"])
            mask = rows["attention_mask"] | is_added
            if expansion.attend:
                rows["attention_mask"] = mask
        counts = mask.astype(bool) & ~np.isin(rows["input_ids"], self._skipped)
        return {**rows, "vector_mask": counts.astype(np.int32)}


def _wider(array: np.ndarray, width: int) -> np.ndarray:
    more = [(0, 0)] * (array.ndim - 1) + [(0, width - array.shape[-1])]
    return np.pad(array, more)


def _expansion_id(token: str | None, tokenizer: Tokenizer) -> int:
    """The id of the token that is added to queries."""
    if token is None:
        return tokenizer.special_id("mask", "the expansion of queries")
    token_id = tokenizer.token_to_id(token)
    if token_id is None:
        raise UserError(f"query_expansion.token is {token!r}, and the tokenizer has no such token")
    return token_id


def token_vectors_of(description: ModelDescription) -> TokenVectors:
    """How a model makes vectors of tokens.

    Raises:
        UserError: it does not, or its files have an unsupported content.
    """
    vectors = description.stored_vectors
    if not isinstance(vectors, TokenVectors):
        raise UserError(
            "the files of the model name no vectors of tokens; give a model for late interaction, "
            "such as a ColBERT, or train one with task late_interaction"
        )
    if vectors.unsupported:
        raise UserError(f"{vectors.unsupported}; give another model")
    return vectors


class TokenVectorsPredictor(TextPredictor[TokenVectorsOfText]):
    """The vectors of the tokens of a text that count.

    Attributes:
        vectors: how they are made.
        width: X of each.
    """

    # The vectors of a chunk are in memory together: of 256 documents with 200 tokens, 26 MB if
    # their width is 128.
    chunk_batches = 8

    def __init__(self, model: Model, options: BatchOptions, *, side: str) -> None:
        """For arguments see `LoadedModel.token_vectors`.

        Raises:
            UserError: the model makes no such vectors, or `max_length` contradicts its queries.
        """
        require_one_of("side", side, SIDES)
        self.vectors, self._side = token_vectors_of(model.description), side
        rows = TokenRows(self.vectors, model.tokenizer, side)
        expansion: Any = self.vectors.expansion
        if rows.is_expanded and expansion.strategy == FIXED and options.max_length:
            rule = f"queries of this model have exactly {expansion.length} tokens: leave it out"
            raise OptionError("max_length", options.max_length, rule)
        most = model.config.max_length
        if rows.is_expanded and not self.vectors.appended and expansion.length > most:
            raise UserError(
                f"the model has {most} positions, and by its files queries have "
                f"{expansion.length} tokens; fix query_expansion.length"
            )
        super().__init__(model, options, prepare=rows.prepare)
        self._rows = rows
        # Packed rows have no place for added tokens.
        self.packs_rows = not rows.is_expanded
        self.width = self.vectors.width(model.config.hidden_size)
        self._module = TokenTowers(
            model.config, model.module.execution, modules=self.vectors.modules
        )
        module_params = model.compute_params.get(TEXT_VECTORS, {})
        self._params = {ENCODER_SCOPE: encoder_of(model)[1], TEXT_VECTORS: module_params}

    @property
    def stored_length(self) -> int | None:
        own = self.vectors.limit(self._side)
        return self.model.tokenizer.model_max_length if own is None else own

    @property
    def limit(self) -> int:
        most = self.model.config.max_length
        appended = self.vectors.appended if self._side == QUERY else 0
        return min(super().limit, most - appended)

    def count(self, texts: Sequence[Text]) -> int:
        """The number of vectors of texts that are not expanded, without computing them."""
        encoded = (each for each in self.encode(texts) if isinstance(each, EncodedExample))
        return sum(self._rows.count(each.rows[0]) for each in encoded)

    def inputs(self, arrays: dict[str, np.ndarray], rows: Any) -> dict[str, np.ndarray]:
        return self._rows.arrays(arrays)

    def compute(self, batch: dict[str, jax.Array]) -> tuple[jax.Array, ...]:
        vectors, mask = _vectors(self._params, batch, module=self._module)
        return vectors, mask, batch["input_ids"]

    def output_values(self, length: int) -> int:
        return self.width * length

    def decode_row(self, encoding: Encoding, output: Any) -> TokenVectorsOfText:
        vectors, mask, ids = output
        counts = mask.astype(bool)
        vectors = check_finite(vectors[counts], "the vectors of a text")
        tokens = [self.model.tokenizer.id_to_token(int(token_id)) for token_id in ids[counts]]
        return TokenVectorsOfText(tokens, vectors)


@functools.partial(jax.jit, static_argnames="module")
def _vectors(params: Any, batch: dict[str, jax.Array], *, module: TokenTowers) -> Any:
    """A batch → the vectors of its tokens, and which of them count."""
    return module.apply({"params": params}, model_inputs(batch, VectorInputs), method="encode")


PREDICT = PredictSpec(
    TEXTS,
    TokenVectorsPredictOptions,
    lambda model, options: TokenVectorsPredictor(model, options, side=options.side),
    lambda text, result: {"tokens": result.tokens, "vectors": result.vectors},
    variants=lambda description: [{"side": side} for side in SIDES],
)
