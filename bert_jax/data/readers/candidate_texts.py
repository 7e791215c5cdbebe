"""The texts of queries and documents in place of their ids."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bert_jax.data.examples import Candidates, Example, Text, texts_of
from bert_jax.data.readers.candidate_columns import RankingOptions
from bert_jax.data.readers.candidate_lists import chosen
from bert_jax.data.readers.candidates import Id, are_ids
from bert_jax.data.readers.collection import CollectionOptions, open_collection, read_queries
from bert_jax.errors import OptionError, UserError
from bert_jax.process import say


def with_texts(
    examples: Sequence[Example[Candidates]],
    options: RankingOptions,
    corpus: str,
    queries: str,
    *,
    judgements: str = "",
) -> Iterator[Example[Candidates]]:
    """The examples with texts in place of ids.

    Args:
        examples: the examples.
        options: options of the reader.
        corpus: collection of the documents; "": they have texts.
        queries: file of the queries; "": they have texts.
        judgements: the file of the judgements, whose unknown queries and documents are left out
            and counted, unless all are unknown; "": of other examples, these are errors.

    Raises:
        UserError: an id is unknown, or the documents of all examples have ids, but no corpus.
    """
    if not (corpus or options.positive_column or options.document_column):
        _check_documents(examples)
    ids = {text for each in examples for text in each.input.documents if isinstance(text, Id)}
    documents: dict[str, Text] = {}
    if ids:
        with open_collection(corpus, CollectionOptions(empty=options.empty)) as collection:
            documents = {each.id: options.text_of(each) for each in collection if each.id in ids}
    texts: dict[str, Text] = dict(read_queries(queries)) if queries else {}
    unknown: list[str] = []

    def text_of(text: Text, texts: Mapping[str, Text], what: str, example: Example[Any]) -> Any:
        if isinstance(text, Id) and text not in texts:
            place = queries if what == "query" else corpus
            unknown.append(f"{example.location}: the {what} {text!r:.80} is not in {place}")
        return texts.get(text) if isinstance(text, Id) else text

    is_any = False
    for example in examples:
        query = text_of(example.input.query, texts, "query", example)
        known = [text_of(each, documents, "document", example) for each in example.input.documents]
        if unknown and not judgements:
            break
        kept = [index for index, text in enumerate(known) if text is not None]
        if query is not None and kept:
            is_any = True
            candidates = Candidates(query, tuple(known))
            yield chosen(dataclasses.replace(example, input=candidates), kept)
    if unknown and not (judgements and is_any):
        raise UserError(f"{unknown[0]}; give the files that the ids belong to")
    if unknown:
        say(f"judgements of unknown ids left out: {len(unknown)}; the first: {unknown[0]}")
    if unjudged := judgements and len(texts.keys() - {each.input.query for each in examples}):
        say(f"{unjudged} of {len(texts)} queries have no judgements in {judgements}")


def _check_documents(examples: Sequence[Example[Candidates]]) -> None:
    """Refuses documents that are ids, where only the texts of queries are stored elsewhere."""
    documents = [text for each in examples for text in each.input.documents]
    if documents and are_ids(" ".join(texts_of(text)) for text in documents):
        raise OptionError(
            "data.corpus",
            "",
            "name the file with the texts as {data.corpus}, or, if these are texts, their field as "
            "{data.positive_column}",
            f"{examples[0].location}: the documents, as {documents[0]!r:.80}, are ids",
        )
