"""What the tasks of queries with documents have in common, whatever computes the scores."""

import dataclasses
import functools

from bert_jax.data.examples import Candidates, texts_of
from bert_jax.data.readers.candidate_columns import RankingOptions
from bert_jax.errors import OptionError, require_at_least
from bert_jax.metrics.ranking import DEFAULT_METRICS, ranking_metrics
from bert_jax.process import say
from bert_jax.tasks.base.labelled_options import LabelledData
from bert_jax.tasks.base.labelled_task import LabelledTask
from bert_jax.tasks.base.ranking_rows import RankingObjective, RankingRows, ranking_rows

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


class RankedTask(LabelledTask[Candidates]):
    """Training on queries with their documents.

    Attributes:
        data: options of the documents and the metrics.
        objective: what the loss takes as a training example.
    """

    unit = "queries"
    default_length = DEFAULT_LENGTH

    data: RankedData
    objective: RankingObjective

    @functools.cached_property
    def ranking(self) -> RankingRows:
        """The training examples, before they are tokenised."""
        return ranking_rows(self.splits.train, self.objective, self.data.negatives)

    def reading_report(self) -> tuple[str, ...]:
        return self.ranking.report

    def examples_as_text(self, count: int) -> str:
        """Query, grade and document, a separate title before it, one document a line."""
        return "\n".join(
            "\t".join([example.input.query, f"{grade:g}", *texts_of(text)])
            for example in self.splits.train[:count]
            for text, grade in zip(example.input.documents, example.label.grades, strict=True)
        )


def say_not_counted(name: str, alone: int, count: int) -> None:
    """Says how many queries of a set have relevant documents alone, perfect in any order."""
    if alone:
        queries = f"{alone:,} of {count:,} queries"
        say(f"{name}: {queries} have relevant documents alone, and do not count")
