"""Judgements of the documents of a collection: of BEIR, of TREC, and in SQuAD's JSON."""

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path

from bert_jax.data.readers.candidate_columns import JUDGEMENTS, RankingOptions
from bert_jax.data.readers.collection import CollectionOptions, open_collection
from bert_jax.data.readers.folders import file_of, is_folder
from bert_jax.data.readers.lines import open_lines, uncompressed_name
from bert_jax.data.readers.squad import is_squad, read_questions
from bert_jax.data.readers.tables import first_row, is_dataset
from bert_jax.errors import OptionError, UserError
from bert_jax.files import as_path
from bert_jax.process import say

# Names in headers, without hyphens and the like.
_QUERY_IDS = {"queryid", "qid"}
_DOCUMENT_IDS = {"corpusid", "documentid", "docid", "docno", "passageid", "pid"}


@dataclasses.dataclass(frozen=True)
class JudgementFiles:
    """Judgements of the documents of a collection.

    Attributes:
        path: the file of the judgements.
        corpus: folder or file of the documents.
        queries: folder or file of the queries.
    """

    path: str
    corpus: str
    queries: str

    def read(self, *, require_positive: bool) -> dict[str, dict[str, int]]:
        """Query id → document id → grade; for errors see `read_judgements`.

        Args:
            require_positive: whether queries without a positive are left out and counted.

        Raises:
            OptionError: no query would be left.
        """
        judgements = read_judgements(self.path)
        if not require_positive:
            return judgements
        kept = {query: grades for query, grades in judgements.items() if max(grades.values()) > 0}
        if not kept:
            rule = "give other judgements, or set {data.require_positive=false}"
            problem = f"{self.path}: no grade is above 0"
            raise OptionError("data.require_positive", True, rule, problem)
        if without := len(judgements) - len(kept):
            say(f"{self.path}: queries without a positive left out: {without:,}")
        return kept


def find_judgements(
    source: str | Path, options: RankingOptions, split: str
) -> JudgementFiles | None:
    """The judgements of a BEIR folder, or of one of its files; None: the source is another file.

    Args:
        source: the folder or the file.
        options: options of the reader.
        split: see `judgement_file`.

    Raises:
        UserError: the source cannot be read, or the folder has no judgements.
    """
    if not _has_judgements(source, options):
        return None
    path = as_path(judgement_file(source, split))
    folder = str(path.parent.parent if path.parent.name == "qrels" else path.parent)
    corpus, queries = options.path_of(options.corpus), options.path_of(options.queries)
    return JudgementFiles(str(path), corpus or folder, queries or folder)


def _has_judgements(source: str | Path, options: RankingOptions) -> bool:
    if options.format or is_dataset(source):
        return options.format == JUDGEMENTS
    if is_folder(source):
        return True
    is_tsv = uncompressed_name(source).endswith(".tsv")
    return is_tsv and _is_header(first_row(source, options))


def judgement_file(source: str | Path, split: str) -> str | Path:
    """The file of the judgements in a BEIR folder; another source itself.

    Args:
        source: the folder, or a file.
        split: "train", "validation" or "test"; a folder without splits has a qrels.tsv.

    Raises:
        UserError: the folder has none.
    """
    validation = "qrels/dev.tsv", "qrels/validation.tsv"
    names = validation if split == "validation" else (f"qrels/{split}.tsv",)
    return file_of(source, *names, "qrels.tsv")


def read_judgements(source: str | Path, split: str = "test") -> dict[str, dict[str, int]]:
    """Query id → document id → grade.

    Args:
        source: a BEIR folder; a file with the columns query, document, grade below a header (BEIR),
            or query, 0, document, grade (TREC); or SQuAD's JSON, where the paragraph of a question
            has the grade 1.
        split: of a BEIR folder, see `judgement_file`.

    Raises:
        UserError: the file cannot be read, or has no judgements; or a line is malformed, or
            repeats a judgement with another grade.
    """
    path = judgement_file(source, split)
    read = _squad_judgements if is_squad(path, CollectionOptions()) else _judgements
    if judgements := read(path):
        return judgements
    raise UserError(f"{path} has no judgements; give another file")


def _judgements(path: str | Path) -> dict[str, dict[str, int]]:
    judgements: dict[str, dict[str, int]] = {}
    with open_lines(path) as lines:
        for number, line in lines:
            location = f"{lines.name}:{number}"
            match line.split("\t") if line.count("\t") == 2 else line.split():
                case []:
                    continue
                case fields if _is_header(fields):
                    continue
                case [query, document, grade] | [query, _, document, grade]:
                    pass
                case fields:
                    raise UserError(
                        f"{location}: {len(fields)} columns; a judgement is query, document, grade "
                        "or, as of TREC, query, 0, document, grade, with tabs or blanks between"
                    )
            try:
                value = int(grade)
            except ValueError:
                raise UserError(
                    f"{location}: the grade is {grade.strip()!r:.40}; give a whole number, or, "
                    "in a header, query-id, corpus-id, score"
                ) from None
            if judgements.setdefault(query, {}).setdefault(document, value) != value:
                raise UserError(
                    f"{location}: query {query!r:.80} and document {document!r:.80} already have "
                    f"the grade {judgements[query][document]}; keep one of the lines"
                )
    return judgements


def _is_header(fields: Sequence[str]) -> bool:
    """Whether a line of judgements names its columns, as BEIR's query-id, corpus-id, score."""
    names = [re.sub(r"[\W_]", "", field).lower() for field in fields]
    return len(names) > 2 and names[0] in _QUERY_IDS and names[-2] in _DOCUMENT_IDS


def _squad_judgements(source: str | Path) -> dict[str, dict[str, int]]:
    with open_collection(source) as documents:
        ids = {document.text: document.id for document in documents}
    return {
        question.id: {ids[question.input.passage]: int(question.label != ())}
        for question in read_questions(source)
    }
