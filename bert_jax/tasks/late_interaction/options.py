"""The options of late interaction, and the model that they describe."""

import dataclasses

from bert_jax.errors import OptionError, require_at_least, require_one_of
from bert_jax.models.heads.token_vectors import (
    APPEND,
    FIXED,
    PUNCTUATION,
    SIMILARITIES,
    QueryExpansion,
    TokenVectors,
)
from bert_jax.models.vectors import DOCUMENT, IDENTITY, QUERY, SIDES, Dense, Module, Normalize
from bert_jax.tasks.base.model_init import ModelInit
from bert_jax.tasks.base.retrieval.options import UNBOUNDED_LOSSES, RetrievalData
from bert_jax.tasks.token_vectors import token_vectors_of
from bert_jax.tokenization import Tokenizer

_NONE = "none"
# Of a model that has no vectors of tokens yet.
_WIDTH, _QUERY_LENGTH, _DOCUMENT_LENGTH, _APPENDED = 128, 32, 180, 8


@dataclasses.dataclass(frozen=True)
class LateInteractionData(RetrievalData):
    """The section `data` of a config.

    What is not set is as in the initial model; or, if that has no vectors of tokens, as named.
    Lengths are a part of the model: a finished one is evaluated with its own.

    Attributes:
        query_length: maximum number of tokens of a query; None: not set (32).
        projection: width of the vectors after a linear layer, 0 for none; None: not set (128).
        projection_bias: whether this layer has a bias.
        normalize: whether vectors are scaled to length 1, for cosines; None: not set (true).
        markers: whether the prompts of queries and documents are tokens of the vocabulary.
        expansion: "fixed": mask tokens fill up each query to `query_length` tokens; "append":
            `expansion_length` are added to each; "none"; None: not set ("none").
        expansion_length: number of tokens that "append" adds; None: not set (8).
        expansion_attend: whether other tokens attend to these; None: not set (false).
        skip_punctuation: whether punctuation does not count in documents; None: not set (false).
        similarity: one of `SIMILARITIES`; None: not set ("maxsim").
    """

    LOSSES = UNBOUNDED_LOSSES

    projection: int | None = None
    projection_bias: bool = False
    normalize: bool | None = None
    markers: bool = False
    expansion: str | None = None
    expansion_length: int | None = None
    expansion_attend: bool | None = None
    skip_punctuation: bool | None = None
    similarity: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least("data.projection", self.projection, 0)
        require_one_of("data.expansion", self.expansion, (None, _NONE, FIXED, APPEND))
        require_at_least("data.expansion_length", self.expansion_length, 1)
        require_one_of("data.similarity", self.similarity, (None, *SIMILARITIES))
        if self.projection_bias and not self.projection:
            rule = "it is of a new layer: set its width as {data.projection}, or leave it out"
            raise OptionError("data.projection_bias", True, rule)

    def vectors(self, model_init: ModelInit, tokenizer: Tokenizer) -> TokenVectors:
        """How the trained model makes vectors.

        Raises:
            OptionError: a marker is no token of the vocabulary, or queries are too long.
        """
        base = model_init.description
        if base and model_init.is_finished:
            return token_vectors_of(base)
        hidden_size = model_init.architecture(tokenizer).hidden_size
        layer = Dense(hidden_size, _WIDTH, bias=False, activation_function=IDENTITY)
        new = TokenVectors(
            modules=(layer, Normalize()),
            query_length=_QUERY_LENGTH,
            document_length=_DOCUMENT_LENGTH,
        )
        has_own = base and isinstance(base.stored_vectors, TokenVectors)
        vectors = token_vectors_of(base) if base and has_own else new
        query_length = self.query_length or vectors.limit(QUERY)
        changed = dataclasses.replace(
            vectors,
            modules=self._modules(vectors, hidden_size),
            prompts=self.prompts(vectors),
            query_length=query_length,
            document_length=self.length or vectors.document_length,
            expansion=self._expansion(vectors, query_length),
            similarity=self.similarity or vectors.similarity,
        )
        if self.skip_punctuation is not None:
            words = PUNCTUATION if self.skip_punctuation else ()
            changed = dataclasses.replace(changed, skipped_words=words, skipped_sides=(DOCUMENT,))
        if self.markers:
            changed = dataclasses.replace(changed, markers=_markers(changed, tokenizer))
        most = model_init.architecture(tokenizer).max_length - changed.appended
        if query_length and query_length > most:
            rule = f"the model takes queries of at most {most} tokens"
            raise OptionError("data.query_length", query_length, rule)
        return changed

    def _modules(self, vectors: TokenVectors, hidden_size: int) -> tuple[Module, ...]:
        is_normal = vectors.ends_in_normalize
        modules = vectors.modules[:-1] if is_normal else vectors.modules
        if self.projection is not None:
            bias, width = self.projection_bias, self.projection
            layer = Dense(hidden_size, width, bias=bias, activation_function=IDENTITY)
            modules = (layer,) if width else ()
        normalize = is_normal if self.normalize is None else self.normalize
        return (*modules, Normalize()) if normalize else modules

    def _expansion(self, vectors: TokenVectors, query_length: int | None) -> QueryExpansion | None:
        """The tokens that are added to queries.

        Raises:
            OptionError: an option is about tokens that are not added.
        """
        expansion = vectors.expansion
        match self.expansion:
            case "none":
                expansion = None
            case "append":
                expansion = QueryExpansion(APPEND, _APPENDED)
            case "fixed":
                expansion = QueryExpansion(FIXED, query_length or _QUERY_LENGTH)
        is_appended = expansion is not None and expansion.strategy == APPEND
        if self.expansion_length and not is_appended:
            rule = "set {data.expansion=append}, which adds so many tokens, or leave it out"
            raise OptionError("data.expansion_length", self.expansion_length, rule)
        if expansion is None:
            if self.expansion_attend:
                rule = "no tokens are added to queries: set {data.expansion}, or leave it out"
                raise OptionError("data.expansion_attend", True, rule)
            return None
        length = expansion.length
        if is_appended:
            length = self.expansion_length or length
        elif query_length:
            length = query_length if expansion.strategy == FIXED else min(length, query_length)
        attend = expansion.attend if self.expansion_attend is None else self.expansion_attend
        return dataclasses.replace(expansion, length=length, attend=attend)


def _markers(vectors: TokenVectors, tokenizer: Tokenizer) -> tuple[str, ...]:
    """The prompts of both sides, each of them a token of the vocabulary."""
    for side in SIDES:
        prompt = vectors.all_prompts[side]
        if tokenizer.known_token(prompt) is None:
            remedy = "add it to the model with bert-jax convert --add-markers FILE"
            raise OptionError(
                f"data.{side}_prompt",
                prompt,
                f"{remedy}, or set {{data.markers=false}}",
                problem=f"{prompt.strip()!r} is no token of the vocabulary",
            )
    return tuple(vectors.all_prompts[side] for side in SIDES)
