"""The options that all tasks of retrieval read from a config."""

import dataclasses
from typing import ClassVar

from bert_jax.errors import OptionError, require_at_least, require_between, require_one_of
from bert_jax.models.config import EncoderConfig
from bert_jax.models.vectors import DOCUMENT, QUERY, StoredVectors
from bert_jax.tasks.base.ranked_task import DEFAULT_LENGTH, RankedData
from bert_jax.tokenization import Tokenizer

LOSSES = ("multiple_negatives", "margin_mse", "kl_divergence", "triplet", "contrastive", "cosent")
UNBOUNDED_LOSSES = tuple(name for name in LOSSES if name != "contrastive")
"""The losses of scores that may be above 1, as no cosine is."""
DIRECTIONS = (
    *("query_to_document", "document_to_query", "query_to_query", "document_to_document"),
)


@dataclasses.dataclass(frozen=True)
class RetrievalData(RankedData):
    """The section `data` of a config; `length` is the maximum number of tokens of a document.

    Attributes:
        LOSSES: the losses that the task has.
        query_length: maximum number of tokens of a query; None: as for a document.
        query_prompt: text that is put before each query; None: the prompt of the model.
        document_prompt: the same of documents.
        loss: one of them, see `objectives`.
        scale: factor of the scores in "multiple_negatives" and "cosent", 1 / temperature; None: 20
            for cosines, else 1.
        directions: what "multiple_negatives" compares, of `DIRECTIONS`, see `objectives`.
        margin: of "triplet" and "contrastive".
        temperature: divides the scores in "kl_divergence".
    """

    LOSSES: ClassVar[tuple[str, ...]] = LOSSES

    query_length: int | None = None
    query_prompt: str | None = None
    document_prompt: str | None = None
    loss: str = "multiple_negatives"
    scale: float | None = None
    directions: tuple[str, ...] = DIRECTIONS[:1]
    margin: float = 0.5
    temperature: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least("data.query_length", self.query_length, 3)
        require_one_of("data.loss", self.loss, self.LOSSES)
        require_between("data.scale", self.scale, 0, without_low=True)
        require_between("data.margin", self.margin, 0, without_low=True)
        require_between("data.temperature", self.temperature, 0, without_low=True)
        for direction in self.directions:
            require_one_of("data.directions", direction, DIRECTIONS)
        if DIRECTIONS[0] not in self.directions:
            rule = f"{DIRECTIONS[0]} must be among them, since it has the positive"
            raise OptionError("data.directions", self.directions, rule)
        if not self.negatives and self.loss in ("margin_mse", "kl_divergence", "triplet"):
            rule = f"{{data.loss={self.loss}}} compares documents of a query: give at least 1"
            raise OptionError("data.negatives", self.negatives, rule)

    def max_length(
        self, vectors: StoredVectors, tokenizer: Tokenizer, config: EncoderConfig
    ) -> int:
        """The maximum number of tokens in the trained model's files, as it is trained with."""
        stored = vectors.max_length or tokenizer.model_max_length or config.max_length
        return self.length or min(DEFAULT_LENGTH, stored, config.max_length)

    def prompts(self, vectors: StoredVectors) -> dict[str, str]:
        """The prompts of the trained model, from those of the initial one."""
        prompts_by_side = {QUERY: self.query_prompt, DOCUMENT: self.document_prompt}
        prompts = {side: prompt for side, prompt in prompts_by_side.items() if prompt is not None}
        return {**vectors.prompts, **prompts}
