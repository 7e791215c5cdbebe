"""A record with a query and documents → an example, by the names that users have for its fields.

    query, positives, negatives   sentence-transformers' pairs, triplets and tuples; objects of
                                  FlagEmbedding, DPR and Tevatron; a teacher's triples
    query, documents, labels      a list; or one document, whose label may be missing: 1; also
                                  beside negatives

A document is a text, or an object with a text, a title and, among `documents`, a label.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bert_jax.data.examples import Candidates, Document, Example, Relevance, Text, texts_of
from bert_jax.data.readers.candidate_columns import (
    OBJECT_LABELS,
    SCORE_SIDES,
    CandidateColumns,
    RankingOptions,
    check_unread,
    find_candidate_columns,
)
from bert_jax.data.readers.candidate_lists import chosen
from bert_jax.data.readers.collection import DOCUMENT_TEXTS, empty_error, id_of
from bert_jax.data.readers.columns import usual_column
from bert_jax.data.readers.squad import ANSWERS, gold_answers
from bert_jax.data.readers.tables import Record, string_field
from bert_jax.errors import FLOAT32_MAX, OptionError, UserError


class Id(str):
    """The id of a query or a document, in place of its text."""


def are_ids(texts: Iterable[str]) -> bool:
    """Whether texts are rather ids: none has a blank, or a letter beyond ASCII."""
    return all(text.isascii() and " " not in text.strip() for text in texts)


class CandidateParser:
    """Makes examples of records; a text that is stored elsewhere is an `Id`.

    The label of an example is a `Relevance`; `label_field` is set if a record is one document with
    a label.

    Attributes:
        skipped: locations of the empty documents that were left out.
    """

    def __init__(self, options: RankingOptions, *, for_training: bool = False) -> None:
        """Makes the parser.

        Args:
            options: options of the reader.
            for_training: whether these are errors: a list without labels and scores, whose
                documents are otherwise graded 0; a title that is not of one document; a column of
                positives, negatives, labels or scores that has no usual name.
        """
        self._options, self._for_training = options, for_training
        # The names of the last record and their columns: most records have the same.
        self._cached: tuple[tuple[str, ...], CandidateColumns] | None = None
        self.skipped: list[str] = []

    def columns(self, names: tuple[str, ...], location: str) -> CandidateColumns:
        """The columns of a table, or of an object, with these names.

        Raises:
            OptionError: a configured column is missing, there is no query or no document, or a
                column is not read that seems to count, see `check_unread`.
        """
        if self._cached is None or names != self._cached[0]:
            columns = find_candidate_columns(self._options, names, location)
            check_unread(self._options, names, columns, location, for_training=self._for_training)
            self._cached = names, columns
        return self._cached[1]

    def __call__(self, record: Record, number: int) -> Example[Candidates]:
        """The example of a record, with its documents in order; `number` counts from 0.

        Raises:
            UserError: a text is missing or empty, or there is not a number for each document.
        """
        location = record.location
        columns = self.columns(record.keys, location)
        text_columns = (*columns.documents, *columns.negatives)
        fields = {**record.fields, **{key: _objects(record.fields[key]) for key in text_columns}}
        title = self._title(fields, columns, location)
        documents, negatives = (
            [self._text(item, key, location, title) for key in keys for item in _items(fields[key])]
            for keys in (columns.documents, columns.negatives)
        )
        is_row = not any(isinstance(fields[key], list) for key in columns.documents)
        texts = documents + negatives
        labels = _labels(fields, columns, location)
        counts = len(documents), len(negatives)
        scores = _scores(fields, columns, counts, location, may_be_margins=labels is None)
        if labels is None:
            is_positive = self._are_positives(fields, columns, scores, location)
            grades, label_field = [float(is_positive)] * len(documents), ""
        else:
            grades, label_field = labels, columns.label or columns.documents[0]
        _require_one_each("labels", grades, documents, location)
        _require_one_each("scores", scores or texts, texts, location)
        grades += [0.0] * len(negatives)
        kept = [index for index, text in enumerate(texts) if self._is_kept(text, location)]
        example = Example(
            Candidates(self._query(fields, columns.query, location), tuple(texts)),
            Relevance(tuple(grades), tuple(scores)),
            record.id(columns.id, number),
            location,
            label_field=label_field if is_row else "",
            read=(*columns.names, *ANSWERS, "is_impossible"),
        )
        return chosen(example, kept)

    def _are_positives(
        self,
        fields: Mapping[str, Any],
        columns: CandidateColumns,
        scores: Sequence[float],
        location: str,
    ) -> bool:
        """Whether documents without labels are positives.

        A text is one, unless a teacher's score may say otherwise. sentence-transformers adds
        negatives to columns of any name, such as (question, answer).
        """
        if columns.has_positives:
            return True
        if _is_unanswerable(fields, location):
            return False
        column = next((key for key in columns.documents if fields[key]), None)
        is_list = column is not None and isinstance(fields[column], list)
        if self._for_training and is_list and not scores:
            raise OptionError(
                "data.label_column",
                None,
                "name their labels as {data.label_column}, or the column as {data.positive_column} "
                "if each is a positive",
                f"{location}: {column!r} is a list of documents without labels or scores",
            )
        return not is_list and (bool(columns.negatives) or not scores)

    def _query(self, fields: Mapping[str, Any], key: str, location: str) -> str:
        if self._options.queries:
            return Id(id_of(fields[key], location))
        query = string_field(fields, key, location)
        if not query.strip():
            raise UserError(f"{location}: the query is empty; fix the row, or remove it")
        return query

    def _title(self, fields: Mapping[str, Any], columns: CandidateColumns, location: str) -> str:
        """The title of a record with one document; "" without.

        Raises:
            OptionError: there are several documents, and the title is named or read for training.
        """
        if not columns.title or self._options.titles == "omit":
            return ""
        several = columns.documents[1:] or columns.negatives or self._options.corpus
        if not several and not isinstance(fields[columns.documents[0]], list):
            return string_field(fields, columns.title, location)
        if fields[columns.title] and (self._for_training or self._options.title_column):
            raise OptionError(
                "data.title_column",
                self._options.title_column,
                "give each document as an object with 'title' and 'text', or leave all titles out "
                "with {data.titles=omit}",
                f"{location}: {columns.title!r} is not the title of the only document",
            )
        return ""

    def _text(self, value: Any, key: str, location: str, title: str) -> Text:
        """A document of a column; an object may have a title of its own."""
        if isinstance(value, Mapping):
            place = f"{location}: {key}"
            text = usual_column(DOCUMENT_TEXTS, tuple(value)) or "text"
            title = string_field({"title": value.get("title") or title}, "title", place)
            return self._options.text_of(Document("", string_field(value, text, place), title))
        if self._options.corpus:
            return Id(id_of(value, location))
        if key.lower().endswith("_ids"):
            rule = "name the collection with their texts as {data.corpus}"
            raise OptionError("data.corpus", "", rule, f"{location}: {key!r} has ids of documents")
        text = string_field({key: value}, key, location)
        return self._options.text_of(Document("", text, title))

    def _is_kept(self, text: Text, location: str) -> bool:
        if "".join(texts_of(text)).strip():
            return True
        if self._options.empty == "error":
            raise empty_error(f"{location}: a document")
        self.skipped.append(location)
        return False


def _objects(documents: Any) -> Any:
    """Objects in the form of Hugging Face, a list for each key, as a list; others as they are."""
    if not isinstance(documents, Mapping) or not documents:
        return documents
    lists = [value for value in documents.values() if isinstance(value, list)]
    if len(lists) < len(documents) or len(set(map(len, lists))) > 1:
        return documents
    return [dict(zip(documents, row, strict=True)) for row in zip(*lists, strict=True)]


def _items(value: Any) -> list[Any]:
    """The items of a list, or the only one."""
    return value if isinstance(value, list) else [value]


def _require_one_each(
    what: str, numbers: Sequence[Any], documents: Sequence[Text], location: str
) -> None:
    if len(numbers) != len(documents):
        raise UserError(
            f"{location}: {len(numbers)} {what} of {len(documents)} documents; give one each"
        )


def _numbers(value: Any, key: str, location: str) -> list[float]:
    """The numbers of a column: one, or a list."""
    numbers = []
    for item in _items(value):
        try:
            number = float(item)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not abs(number) <= FLOAT32_MAX:
            raise UserError(
                f"{location}: {key!r} has {item!r:.40}, which is not a number, or one that is not "
                "finite in float32; fix the row"
            )
        numbers.append(number)
    return numbers


def _scores(
    fields: Mapping[str, Any],
    columns: CandidateColumns,
    counts: tuple[int, int],
    location: str,
    *,
    may_be_margins: bool,
) -> list[float]:
    """The scores of documents and negatives, `counts` of them; [] without.

    With `may_be_margins`, one for each negative of a positive is the difference of their scores.
    """
    scores: list[float] = []
    sides = [SCORE_SIDES.get(column.lower()) for column in columns.scores]
    for column, side in zip(columns.scores, sides, strict=True):
        numbers = _numbers(fields[column], column, location)
        if side is not None and len(numbers) != counts[side]:
            raise UserError(
                f"{location}: {column!r} has {len(numbers)} scores of {counts[side]} documents; "
                "give one each"
            )
        scores += numbers
    is_margins = may_be_margins and sides == [None] and counts[0] == 1
    if is_margins and 0 < len(scores) == counts[1]:
        return [0.0, *(-margin for margin in scores)]
    return scores


def _labels(
    fields: Mapping[str, Any], columns: CandidateColumns, location: str
) -> list[float] | None:
    """The labels of the documents, in their column or in each object; None: they have none."""
    if columns.label:
        return _numbers(fields[columns.label], columns.label, location)
    labels = []
    for column in () if columns.has_positives else columns.documents:
        for item in _items(fields[column]):
            names = tuple(item) if isinstance(item, Mapping) else ()
            if key := usual_column(OBJECT_LABELS, names):
                labels += _numbers(item[key], key, f"{location}: {column}")
    return labels or None


def _is_unanswerable(fields: Mapping[str, Any], location: str) -> bool:
    """Whether a question has answers, but none in its passage, as in SQuAD 2.0."""
    return any(gold_answers(fields, key, location) == () for key in ANSWERS if key in fields)
