"""The options of dual encoders, and the model that they describe."""

import dataclasses
from typing import Any

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.errors import OptionError, require_at_least, require_one_of
from bert_jax.models.heads.text_vectors import SIMILARITIES, TOKEN_POOLINGS, TextVectors
from bert_jax.models.vectors import IDENTITY, Dense, Module, Normalize
from bert_jax.tasks.base.model_init import ModelInit
from bert_jax.tasks.base.retrieval.options import UNBOUNDED_LOSSES, RetrievalData
from bert_jax.tokenization import Tokenizer


@dataclasses.dataclass(frozen=True)
class DualEncoderData(RetrievalData):
    """The section `data` of a config of task "retrieval".

    Attributes:
        pooling: one of `TOKEN_POOLINGS`, or several with commas; None: the pooling of the model.
        projection: width of the vectors after a new linear layer, which replaces the modules that
            the model has after its pooling; None: these.
        normalize: whether vectors are scaled to length 1; None: as the model does.
        similarity: one of `SIMILARITIES`; None: the similarity of the model.
        matryoshka: numbers of first values of the vectors that are trained, see `DualInteraction`.
    """

    pooling: str | None = None
    projection: int | None = None
    normalize: bool | None = None
    similarity: str | None = None
    matryoshka: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in filter(None, (self.pooling or "").split(",")):
            require_one_of("data.pooling", name, TOKEN_POOLINGS)
        require_at_least("data.projection", self.projection, 1)
        require_one_of("data.similarity", self.similarity, (None, *SIMILARITIES))
        for width in self.matryoshka:
            require_at_least("data.matryoshka", width, 1)

    def describe(self, model_init: ModelInit, tokenizer: Tokenizer) -> ModelDescription:
        """A bare encoder without pooler; what is not set is as in the initial model.

        Raises:
            OptionError: its vectors cannot be trained, or are narrower than `matryoshka` says.
        """
        base, family = model_init.description, model_init.family
        vectors = base.vectors if base else family.vectors
        vectors = vectors.chosen(self.pooling, self.normalize)
        if not vectors.pools_tokens:
            rule = "set {data.pooling=cls} or another, since the pooler is not trained"
            problem = "the initial model makes vectors with its pooler"
            raise OptionError("data.pooling", self.pooling, rule, problem)
        config = model_init.architecture(tokenizer)
        hidden_size = config.hidden_size
        changes: dict[str, Any] = {"similarity": self.similarity or vectors.similarity}
        if not model_init.is_finished:
            changes["modules"] = self._modules(vectors, hidden_size)
            changes["prompts"] = self.prompts(vectors)
            changes["max_length"] = self.max_length(vectors, tokenizer, config)
        vectors = dataclasses.replace(vectors, **changes)
        if self.loss not in UNBOUNDED_LOSSES and vectors.similarity != "cosine":
            rule = f"{{data.loss={self.loss}}} takes cosines: set {{data.similarity=cosine}}"
            raise OptionError("data.similarity", vectors.similarity, rule)
        width = vectors.width(hidden_size)
        if too_wide := [each for each in self.matryoshka if each > width]:
            rule = f"the vectors have {width} values: leave {too_wide[0]} out"
            raise OptionError("data.matryoshka", self.matryoshka, rule)
        description = model_init.describe(
            tokenizer, "encoder", add_pooling_layer=False, vectors=vectors
        )
        if base is None or base.family.model_type != family.model_type:
            return description
        return dataclasses.replace(description, family=base.family)  # one of DPR's two encoders

    def _modules(self, vectors: TextVectors, hidden_size: int) -> tuple[Module, ...]:
        """The modules after the pooling."""
        modules, is_normal = vectors.modules, vectors.ends_in_normalize
        if self.projection:
            dense = Dense(vectors.input_width(hidden_size), self.projection, True, IDENTITY)
            modules = (dense, Normalize()) if is_normal else (dense,)
        return (*modules, Normalize()) if self.normalize and not is_normal else modules
