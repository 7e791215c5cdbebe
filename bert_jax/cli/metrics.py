"""The options of verbs that compare results with judgements, and the metrics that they print."""

import argparse
import dataclasses
import json
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from bert_jax.cli.common import Parser
from bert_jax.errors import OptionError, UserError, require_at_least
from bert_jax.files import check_own_files, manifest_updated
from bert_jax.process import say

# Of the recall over k, beside the output.
_PICTURE = ".recall.png"


def add_judgements(parser: Parser) -> None:
    """Adds the options that `Measure` reads."""
    add = parser.add_argument
    add("--judgements", metavar="FILE", help="grades of documents; the metrics are printed")
    add("--metrics", metavar="NAME,NAME", help="names, as ndcg@10,map,recall@100")
    add("--relevant-from", type=int, metavar="N", help="lowest relevant grade (default: 1)")


@dataclasses.dataclass(frozen=True)
class Measure:
    """The metrics of a run.

    Attributes:
        judgements: grades of the documents of each query.
        metrics: their names, see `metrics.ranking.query_metrics`.
        relevant_from: the lowest grade of a relevant document; None: 1.
    """

    judgements: Mapping[str, Mapping[str, int]]
    metrics: Sequence[str]
    relevant_from: int | None

    def __post_init__(self) -> None:
        """Raises OptionError where a value is out of range, or a metric unknown."""
        require_at_least("relevant_from", self.relevant_from, 1)
        self.compute({})

    def compute(self, run: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
        """The metrics of a run."""
        from bert_jax.metrics.ranking import ranking_metrics

        least = self.relevant_from
        return ranking_metrics(self.judgements, run, self.metrics, relevant_from=least)

    def check(
        self, queries: Collection[str], has_any: Callable[[Collection[str]], bool], top_k: int
    ) -> None:
        """Checks that there is something to judge; says which metrics would need more results.

        Args:
            queries: ids of the queries that are evaluated.
            has_any: whether one of the documents that are retrieved from has one of these ids.
            top_k: results of a query.

        Raises:
            UserError: no query has a judgement, or no document.
        """
        from bert_jax.metrics.ranking import cutoff_of

        rule = "give judgements and texts of the same collection"
        judged = self.judgements.keys()
        if judged.isdisjoint(queries):
            ids = f"as {min(judged)!r:.40}, but has {min(queries, default=None)!r:.40}"
            raise UserError(f"the input has none of the queries with judgements, {ids}; {rule}")
        documents = {each for grades in self.judgements.values() for each in grades}
        if not has_any(documents):
            problem = f"no document with a judgement, as {min(documents)!r:.40}, is searched"
            raise UserError(f"{problem}; {rule}")
        cut = [name for name in self.metrics if cutoff_of(name) > top_k]
        if cut:
            say(f"{', '.join(cut)}: a query has at most {top_k:,} results")

    def show(self, run: Mapping[str, Mapping[str, float]], output: Path) -> None:
        """Prints the metrics on the last line, after what is not in both, queries and documents.

        Beside the `output`, if it is a file, the recall is drawn.
        """
        from bert_jax.metrics.recall_curve import draw_recall

        known = self.judgements.keys()
        unjudged, absent = len(run.keys() - known), len(known - run.keys())
        if unjudged:
            say(f"queries without judgements, which do not count: {unjudged:,}")
        if absent:
            say(f"queries with judgements that are not in the input, which count as 0: {absent:,}")
        if output.is_file():
            name, least = output.with_suffix(_PICTURE).name, self.relevant_from
            with tempfile.TemporaryDirectory(prefix=f".{name}.", dir=output.parent) as directory:
                path = Path(directory, name)
                draw_recall(path, output.stem, self.judgements, run, relevant_from=least)
                with manifest_updated(path.parent, output.parent, [name]):
                    path.replace(output.with_name(name))
        print(json.dumps(self.compute(run)))


def measure_of(options: argparse.Namespace) -> Measure | None:
    """The metrics that the options require, if there are judgements.

    Raises:
        UserError: the judgements cannot be read, or are missing; or the picture beside the output
            is not from bert_jax; see also `Measure`.
    """
    from bert_jax.data.readers.judgements import read_judgements
    from bert_jax.metrics.ranking import DEFAULT_METRICS

    metrics = options.metrics.split(",") if options.metrics else DEFAULT_METRICS
    measure = Measure({}, metrics, options.relevant_from)
    if not options.judgements:
        for name in ("metrics", "relevant_from"):
            if (value := getattr(options, name)) is not None:
                raise OptionError(name, value, "it is for {judgements}; give them, or leave it out")
        return None
    output = Path(options.output)
    check_own_files(output.parent, [output.with_suffix(_PICTURE).name])
    return dataclasses.replace(measure, judgements=read_judgements(options.judgements))
