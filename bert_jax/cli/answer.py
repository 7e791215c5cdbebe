"""`bert-jax answer`: answers from an index, or only the passages that have them."""

import argparse
import itertools
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from bert_jax.cli.common import (
    Parser,
    add_computing,
    directory,
    local_mesh,
    open_models,
    say_written,
)
from bert_jax.errors import counted

if TYPE_CHECKING:
    from bert_jax.data.examples import Example
    from bert_jax.inference.open_qa import LocatedAnswer, RetrievedPassage

SUMMARY = "answers to questions from the documents of an index"

# Questions with their passages in memory together.
_QUESTIONS = 64
# Numbers of passages for which the accuracy is computed.
_CUTOFFS = (1, 5, 20, 100)

# The answers to a question in its file, the answer that was found, and which passages have one.
_Judged = tuple[tuple[str, ...], str, list[bool]]


def add_arguments(parser: Parser) -> None:
    """The arguments of the verb."""
    add = parser.add_argument
    add("--index", required=True, type=directory, metavar="INDEX")
    questions = parser.add_mutually_exclusive_group(required=True)
    questions.add_argument("--question", action="append", metavar="TEXT", help="one, or several")
    questions.add_argument("--questions", metavar="FILE", help="questions, perhaps with answers")
    reader = (
        "model of question answering, or reader of passages (default: passages are only retrieved)"
    )
    add("--reader", metavar="DIR", help=reader)
    add("--reranker", metavar="DIR", help="model that orders the passages again")
    add("--model", metavar="DIR", help="the model of the questions (default: where it was)")
    add("--top-k", type=int, default=20, metavar="N", help="passages of a question (default: 20)")
    null = "log odds of no answer above which there is none (default: the reader's own)"
    add("--null-threshold", type=float, metavar="X", help=null)
    add("--searcher", metavar="NAME", help="see `bert-jax search`")
    files = "JSON lines (default: to stdout), .json or .parquet"
    add("--output", default="-", metavar="FILE", help=files)
    add_computing(parser, "maximum tokens of a row of the reader")
    kinds = "jsonl, tsv, csv, text or squad, any other JSON, too (default: by the file extension)"
    add("--input-format", dest="format", metavar="NAME", help=kinds)


def run(options: argparse.Namespace) -> int:
    """Answers; prints metrics on the last line, if the questions have answers."""
    from bert_jax.data.converted_outputs import layout_of
    from bert_jax.data.outputs import check_output, resumable_outputs, to_json
    from bert_jax.inference.index import Index
    from bert_jax.inference.open_qa import OpenQA
    from bert_jax.metrics.answers import has_answer

    check_output(options.output, [options.questions])
    layout = layout_of(options.output)
    mesh = local_mesh()
    query_model, reader, reranker = open_models(options, mesh, "model", "reader", "reranker")
    answering = OpenQA(
        Index.load(options.index, query_model, mesh=mesh),
        reader,
        reranker,
        searcher=options.searcher,
        null_threshold=options.null_threshold,
        batch_size=options.batch_size,
        max_length=options.max_length,
    )
    questions = _questions(options)
    count, judged = 0, list[_Judged]()
    with resumable_outputs(options.output, [layout], request=None) as outputs:
        while chosen := list(itertools.islice(questions, _QUESTIONS)):
            texts = [example.input for example in chosen]
            passages = answering.retrieve(texts, options.top_k)
            answers = answering.read(texts, passages) if reader else itertools.repeat(None)
            for example, retrieved, answer in zip(chosen, passages, answers, strict=False):
                count, gold = count + 1, example.label or ()
                found = [has_answer(gold, each.hit.text or "") for each in retrieved if gold]
                if gold:
                    judged.append((gold, answer.text if answer else "", found))
                result = _answer(answer) if reader else _passages(retrieved, found)
                outputs.write("", to_json(_question(example) | result) + "\n")
    say_written(options.output, counted(count, "questions"))
    if judged:
        print(json.dumps(_metrics(judged, options.top_k, has_reader=reader is not None)))
    return 0


def _questions(options: argparse.Namespace) -> Iterator["Example[str]"]:
    from bert_jax.data.examples import Example
    from bert_jax.data.readers.open_questions import OpenQuestionOptions, read_open_questions

    if options.questions:
        reading = OpenQuestionOptions(format=options.format or "")
        yield from read_open_questions(options.questions, reading)
    for number, text in enumerate(options.question or ()):
        yield Example(text, id=str(number))


def _question(example: "Example[str]") -> dict[str, Any]:
    answers = {} if example.label is None else {"answers": list(example.label)}
    return {"id": example.id, "question": example.input, **answers}


def _passage(passage: "RetrievedPassage") -> dict[str, Any]:
    from bert_jax.data.outputs import float32_repr
    from bert_jax.inference.index import hit_record

    rank_score = passage.rank_score
    ranked = {} if rank_score is None else {"rank_score": float32_repr(rank_score)}
    return hit_record(passage.hit) | ranked


def _passages(passages: "list[RetrievedPassage]", has_answer: list[bool]) -> dict[str, Any]:
    """The passages, as in a file to train a reader on."""
    records = map(_passage, passages)
    if not has_answer:
        return {"passages": list(records)}
    pairs = zip(records, has_answer, strict=True)
    return {"passages": [record | {"has_answer": has} for record, has in pairs]}


def _answer(answer: "LocatedAnswer | None") -> dict[str, Any]:
    from bert_jax.data.outputs import float32_repr

    if answer is None:
        return {"answer": ""}
    place = {"document": answer.document, "start": answer.start, "end": answer.end}
    scores = {
        "score": answer.score,
        "relevance": answer.relevance,
        "no_answer_score": answer.no_answer_score,
    }
    return {
        "answer": answer.text,
        **(place if answer.text else {}),
        **{name: float32_repr(score) for name, score in scores.items() if score is not None},
        "passage": _passage(answer.passage),
    }


def _metrics(judged: Sequence[_Judged], top_k: int, *, has_reader: bool) -> dict[str, float]:
    """Of the questions with answers: the accuracy of retrieval, exact match and F1."""
    from bert_jax.metrics.answers import retrieval_accuracy
    from bert_jax.metrics.squad import score_v1

    columns = zip(*judged, strict=True)
    gold, answers, found = ({str(n): each for n, each in enumerate(column)} for column in columns)
    cutoffs = sorted({*(k for k in _CUTOFFS if k < top_k), top_k})
    accuracy = retrieval_accuracy([*found.values()], cutoffs)
    return accuracy | (score_v1(gold, answers) if has_reader else {})
