"""What the tasks of queries with documents have in common, whatever computes the scores."""

import functools

from bert_jax.data.examples import Candidates, texts_of
from bert_jax.process import say
from bert_jax.tasks.base.labelled_task import LabelledTask
from bert_jax.tasks.base.ranking_options import DEFAULT_LENGTH, RankedData
from bert_jax.tasks.base.ranking_rows import RankingObjective, RankingRows, ranking_rows


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
