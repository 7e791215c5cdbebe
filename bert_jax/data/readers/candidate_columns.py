"""The columns of queries and their documents, configured or by the names that users have for them.

`candidates` makes examples of what is in them.
"""

import dataclasses
import re
from collections.abc import Sequence

from bert_jax.data.examples import TITLES, Document, Text, with_title
from bert_jax.data.readers.collection import EMPTY
from bert_jax.data.readers.columns import named_column, no_usual_name, usual_column
from bert_jax.data.readers.tables import FileOptions
from bert_jax.errors import OptionError, require_one_of
from bert_jax.files import as_path, is_remote

JSON, JUDGEMENTS = "json", "judgements"

_DOCUMENTS = (
    *("documents", "document", "docs", "doc", "document_ids", "ctxs", "passages", "passage"),
    "context",
)
_LABELS = ("labels", "label", "relevance", "grades", "grade")
OBJECT_LABELS = (*_LABELS, "has_answer", "is_selected")  # of DPR's results, of MS MARCO's
SCORE_SIDES = {"pos_scores": 0, "pos_score": 0, "neg_scores": 1, "neg_score": 1}

# Usual names, without regard to case. Of positives, negatives and scores all that are present count
# (DPR has two kinds of negatives, FlagEmbedding two lists of scores), of the others the first one.
_USUAL = {
    "query": ("query", "anchor", "question", "query_text", "qtext"),
    "positive": (
        *("positive", "positives", "pos", "positive_passages", "positive_ctxs"),
        "positive_document_ids",
    ),
    "negative": (
        *("negative", "negatives", "neg", "negative_passages", "hard_negatives", "hard_negative"),
        *("hard_negative_ctxs", "negative_ctxs", "negative_document_ids"),
    ),
    "document": (*_DOCUMENTS, "sentence", "text", "atext", "answer", "response"),
    "label": _LABELS,
    "score": ("scores", "score", "teacher_scores", "teacher_score", *SCORE_SIDES),
    "title": ("title", "document_title", "documenttitle"),
    "id": ("query_id", "query-id", "qid", "question_id", "questionid", "_id", "id"),
}
_NUMBERED = re.compile(r"neg(?:ative)?_?\d+", re.IGNORECASE)  # negative_1, negative_2, …
# Words in the names of columns that a training must read, unless they are of ids.
_WORDS = {"pos", "positive", "positives", "neg", "negs", "negative", "negatives", "score", "scores"}
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")


@dataclasses.dataclass(frozen=True)
class RankingOptions(FileOptions):
    """How queries and their documents are read; keys of the same names in section `data`.

    A column is named, or numbered from 0; "": a column with a usual name.

    Attributes:
        format: a format of `FileOptions`; "json" for SQuAD's and DPR's, "judgements" for BEIR's and
            TREC's; "": selected by the file extension and the first line.
        query_column: column or key of the query.
        positive_column: column or key of one positive document, or of several.
        negative_column: column or key of one negative document, or of several.
        document_column: column or key of documents with labels that tell which are positive.
        label_column: column or key of their labels, numbers; above 0: a positive.
        score_column: column or key of a teacher's scores, in the order positives, negatives.
        title_column: column or key of the title of a row's one document.
        id_column: column or key of the query's id.
        directory: directory of `corpus` and `queries`; "": the working directory.
        corpus: the collection that has the texts, where documents are ids.
        queries: the file that has the texts, where queries are ids.
        titles: how the title of a document is read, see `with_title`.
        empty: whether an empty document is an error ("error") or left out ("skip").
        require_positive: whether queries without a positive are left out, with a count on stderr.
    """

    FORMATS = (JSON, JUDGEMENTS, "jsonl", "tsv", "csv", "text")

    query_column: str = ""
    positive_column: str = ""
    negative_column: str = ""
    document_column: str = ""
    label_column: str = ""
    score_column: str = ""
    title_column: str = ""
    id_column: str = ""
    directory: str = ""
    corpus: str = ""
    queries: str = ""
    titles: str = "join"
    empty: str = "error"
    require_positive: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require_one_of("data.titles", self.titles, TITLES)
        require_one_of("data.empty", self.empty, EMPTY)

    @property
    def names_columns(self) -> bool:
        """Whether a column is named."""
        return any(value for name, value in vars(self).items() if name.endswith("_column"))

    def path_of(self, name: str) -> str:
        """The path of a file in `directory`; "" of none."""
        is_relative = name and self.directory and not is_remote(name)
        return str(as_path(self.directory) / name) if is_relative else name

    def text_of(self, document: Document) -> Text:
        """What a model reads of a document."""
        return with_title(document.text, document.title, self.titles)


@dataclasses.dataclass(frozen=True)
class CandidateColumns:
    """The columns of a record.

    Attributes:
        query: the query.
        documents: positives; or, if `has_positives` is false, documents that need not be.
        has_positives: whether the columns of documents are columns of positives.
        negatives: negatives.
        label: labels of the documents; None: there are none.
        scores: scores of a teacher.
        title: title of the document, of a record with one; None: there is none.
        id: id of the query; None: there is none.
    """

    query: str
    documents: tuple[str, ...]
    has_positives: bool
    negatives: tuple[str, ...]
    label: str | None
    scores: tuple[str, ...]
    title: str | None
    id: str | None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all of them."""
        several = (*self.documents, *self.negatives, *self.scores)
        one_each = filter(None, (self.query, self.label, self.title, self.id))
        return *one_each, *several


def find_candidate_columns(
    options: RankingOptions, names: tuple[str, ...], location: str
) -> CandidateColumns:
    named: dict[str, str | None] = {}
    for kind in _USUAL:
        key = f"{kind}_column"
        named[kind] = named_column(f"data.{key}", getattr(options, key), names, location)

    def first(kind: str) -> str | None:
        return named[kind] or usual_column(_USUAL[kind], names)

    def every(kind: str) -> tuple[str, ...]:
        usual = (usual_column((name,), names) for name in _USUAL[kind])
        return tuple(filter(None, [named[kind]] if named[kind] else usual))

    query = (options.queries and not named["query"] and first("id")) or first("query")
    positives, scores = every("positive"), every("score")
    negatives = every("negative") if options.negative_column else negatives_among(names)
    document, label = first("document"), first("label")
    has_positives = bool(positives) and not options.document_column
    documents = positives if has_positives else tuple(filter(None, [document]))
    if has_positives and negatives and label:  # margins, or scores, of sentence-transformers
        scores, label = scores or (label,), None
    elif len(scores) == 1 and not (options.score_column or label or negatives):
        label = _label_of_scores(scores[0], documents, has_positives, location)
        scores = () if label else scores
    if not query or not (documents or negatives):
        what = "document" if query else "query"
        raise no_usual_name(
            f"data.{what}_column",
            f"a {what}",
            _USUAL[what],
            names,
            location,
            "set {data.query_column}, and {data.positive_column} and {data.negative_column}, or "
            "{data.document_column} and {data.label_column}",
        )
    return CandidateColumns(
        query, documents, has_positives, negatives, label, scores, first("title"), first("id")
    )


def negatives_among(names: Sequence[str]) -> tuple[str, ...]:
    """The columns with a usual name of negatives."""
    usual = (usual_column((name,), names) for name in _USUAL["negative"])
    return *filter(None, usual), *filter(_NUMBERED.fullmatch, names)


def check_unread(
    options: RankingOptions,
    names: tuple[str, ...],
    columns: CandidateColumns,
    location: str,
    *,
    for_training: bool,
) -> None:
    """Refuses a column of documents that is not read; none where such columns are named.

    In training, also one that seems to be of positives, negatives, labels or scores.
    """
    kinds = ("positive", "negative", "document", "label", "score")
    if any(getattr(options, f"{kind}_column") for kind in kinds):
        return
    read = {*columns.documents, *columns.negatives, *columns.scores, columns.label}
    for name in names:
        words = {word.lower() for word in _WORD.findall(name)}
        trains = name.lower() in _LABELS or words & _WORDS
        counts = name.lower() in _DOCUMENTS or (for_training and trains)
        if counts and name not in read and not words & {"id", "ids"}:
            raise OptionError(
                "data.score_column",
                None,
                "rename or remove it, or name those that count as {data.positive_column}, "
                "{data.negative_column}, {data.document_column}, {data.label_column} or "
                "{data.score_column}",
                f"{location}: column {name!r:.80} has no usual name and is not read",
            )


def _label_of_scores(
    score: str, documents: Sequence[str], has_positives: bool, location: str
) -> str | None:
    """The column `score` if it has labels, as of a pair; None: it has scores of a teacher.

    Raises:
        OptionError: it may be both.
    """
    if has_positives and score.lower() in ("score", "scores"):
        raise OptionError(
            "data.document_column",
            None,
            "set {data.document_column} if these documents need not be positives, else "
            "{data.score_column}",
            f"{location}: {documents[0]!r:.40} has {score!r}, but there are no negatives or labels",
        )
    return score if score.lower() == "score" else None
