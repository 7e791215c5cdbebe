"""How a model makes a vector of each token of a text, and which tokens count (late interaction).

Source: ColBERT (Khattab and Zaharia, 2020, https://arxiv.org/abs/2004.12832), sections 3.2 and 3.3.
Fields have the names and the meaning of sentence-transformers 6, `MultiVectorEncoder`.
"""

import dataclasses
import string

import jax
import jax.numpy as jnp

from bert_jax.errors import OptionError, require_at_least, require_one_of
from bert_jax.models.dual_encoder import Towers
from bert_jax.models.head import Head
from bert_jax.models.vectors import DOCUMENT, Module, StoredVectors, VectorModules

MAXSIM, MEAN_MAXSIM = SIMILARITIES = ("maxsim", "meanmaxsim")
"""Σ over the tokens of a query of the greatest dot product with a token of a document; or the mean
over these tokens."""

PUNCTUATION = tuple(string.punctuation)
"""The tokens that do not count in documents of a ColBERT (paper, section 3.2)."""

FIXED, MIN, APPEND = STRATEGIES = ("fixed", "min", "append")


@dataclasses.dataclass(frozen=True)
class QueryExpansion:
    """Tokens that are added behind a query, and count as its tokens (paper, section 3.2).

    Attributes:
        strategy: "fixed": all queries have `length` tokens, with those that are added; "min": short
            ones have; "append": `length` tokens are added to each query.
        length: number of tokens.
        attend: whether other tokens attend to them.
        token: the token; None: the mask token.
    """

    strategy: str
    length: int
    attend: bool = False
    token: str | None = None

    def __post_init__(self) -> None:
        require_one_of("query_expansion.strategy", self.strategy, STRATEGIES)
        require_at_least("query_expansion.length", self.length, 1)
        if not isinstance(self.attend, bool):
            raise OptionError("query_expansion.attend", self.attend, "it must be true or false")


@dataclasses.dataclass(frozen=True)
class TokenVectors(StoredVectors):
    """How a model makes vectors of the tokens of queries and documents.

    Attributes:
        query_length: maximum number of tokens of a query; None: `max_length`.
        document_length: the same for documents.
        expansion: tokens that are added to queries; None: none.
        skipped_words: tokens that do not count in texts of `skipped_sides`.
        skipped_sides: some of `SIDES`.
        similarity: one of `SIMILARITIES`.
        markers: prompts that are each a single token, which the tokenizer still has to learn.
    """

    method = "token_vectors"

    query_length: int | None = None
    document_length: int | None = None
    expansion: QueryExpansion | None = None
    skipped_words: tuple[str, ...] = ()
    skipped_sides: tuple[str, ...] = (DOCUMENT,)
    similarity: str = MAXSIM
    markers: tuple[str, ...] = ()

    def limit(self, side: str) -> int | None:
        """The maximum number of tokens of a text, without those that "append" adds; None: none."""
        if side == DOCUMENT:
            return self.document_length or self.max_length
        own, expansion = self.query_length or self.max_length, self.expansion
        if expansion is None or expansion.strategy == APPEND:
            return own
        if expansion.strategy == FIXED:
            return expansion.length
        return own and max(own, expansion.length)

    @property
    def appended(self) -> int:
        """The number of tokens by which queries are longer than the limit."""
        expansion = self.expansion
        return expansion.length if expansion and expansion.strategy == APPEND else 0


class TokenTowers(Towers):
    """The vectors of tokens, float32 [B, T, X], and 1 for each token that counts, [B, T].

    Attributes:
        modules: see `TokenVectors`.
    """

    modules: tuple[Module, ...] = ()

    def setup(self) -> None:
        super().setup()
        self.text_vectors = VectorModules(self.modules)

    def vectors(self, hidden: jax.Array, mask: jax.Array) -> tuple[jax.Array, jax.Array]:
        vectors = self.text_vectors(hidden.astype(jnp.float32))
        return vectors, mask.astype(jnp.float32)


HEAD = Head()  # the parameters of its modules are those of text vectors
