"""The options of sparse vectors, and the model that they describe."""

import dataclasses

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.errors import require_at_least, require_between, require_one_of
from bert_jax.models.heads.sparse_vectors import ACTIVATIONS, POOLING_STRATEGIES, SparseVectors
from bert_jax.process import say
from bert_jax.tasks.base.model_init import ModelInit
from bert_jax.tasks.base.retrieval.options import UNBOUNDED_LOSSES, RetrievalData
from bert_jax.tasks.sparse_vectors import sparse_description
from bert_jax.tokenization import Tokenizer


@dataclasses.dataclass(frozen=True)
class SparseData(RetrievalData):
    """The section `data` of a config.

    Attributes:
        pooling_strategy: one of `POOLING_STRATEGIES`; None: as the initial model, or "max".
        activation_function: one of `ACTIVATIONS`; None: as the initial model, or "relu".
        query_flops: factor of the FLOPS of queries; 0: only documents are made sparse.
        document_flops: factor of the FLOPS of documents.
        flops_ramp: share of the training in which both factors rise from 0, by the square of the
            step.
        flops_threshold: vectors with at most so many words count as zeros in the FLOPS
            (https://arxiv.org/abs/2504.14839, section 3.3).
    """

    LOSSES = UNBOUNDED_LOSSES

    pooling_strategy: str | None = None
    activation_function: str | None = None
    query_flops: float = 5e-5
    document_flops: float = 3e-5
    flops_ramp: float = 1 / 3
    flops_threshold: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_one_of("data.pooling_strategy", self.pooling_strategy, (None, *POOLING_STRATEGIES))
        require_one_of("data.activation_function", self.activation_function, (None, *ACTIVATIONS))
        require_between("data.query_flops", self.query_flops, 0)
        require_between("data.document_flops", self.document_flops, 0)
        require_between("data.flops_ramp", self.flops_ramp, 0, 1)
        require_at_least("data.flops_threshold", self.flops_threshold, 0)

    def describe(self, model_init: ModelInit, tokenizer: Tokenizer) -> ModelDescription:
        """A masked language model; what is not set is as in the initial model."""
        base = model_init.description
        vectors = sparse_description(base) if base else SparseVectors()
        if base and base.head not in vectors.heads:
            say(
                "init_from has no head of a masked language model: an untrained one gives most "
                "words a weight, and a search is slow; begin from a masked language model"
            )
        if not model_init.is_finished:
            vectors = dataclasses.replace(
                vectors,
                pooling_strategy=self.pooling_strategy or vectors.pooling_strategy,
                activation_function=self.activation_function or vectors.activation_function,
                prompts=self.prompts(vectors),
                max_length=self.max_length(vectors, tokenizer, model_init.architecture(tokenizer)),
            )
        return model_init.describe(tokenizer, "masked_lm", vectors=vectors)
