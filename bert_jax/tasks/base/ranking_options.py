"""The options of tasks that rank documents, from a config."""

import dataclasses

from bert_jax.data.readers.candidate_columns import RankingOptions
from bert_jax.errors import OptionError, require_at_least
from bert_jax.metrics.ranking import DEFAULT_METRICS, ranking_metrics
from bert_jax.tasks.base.labelled_options import LabelledData

DEFAULT_LENGTH = 256
"""The default of `data.length`; less if the model takes fewer tokens."""


@dataclasses.dataclass(frozen=True)
class RankedData(LabelledData, RankingOptions):
    """The keys of the section `data` of all tasks that rank documents.

    Attributes:
        negatives: documents of a training example beside its first one; of a query with more, the
            first ones are taken. The default is that of FlagEmbedding and Tevatron.
        metrics: names of the metrics, see `metrics.ranking.query_metrics`; the first one is the
            default of `data.best_metric`.
        relevant_from: the lowest grade of a relevant document, for all metrics but graded nDCG;
            None: each grade above 0 is one.
    """

    negatives: int = 7
    metrics: tuple[str, ...] = DEFAULT_METRICS
    relevant_from: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least("data.negatives", self.negatives, 0)
        if not self.metrics:
            raise OptionError("data.metrics", self.metrics, "name at least one, such as ndcg@10")
        try:
            ranking_metrics({}, {}, self.metrics, relevant_from=self.relevant_from)
        except OptionError as error:
            raise error.renamed(lambda key: f"data.{key}") from error
