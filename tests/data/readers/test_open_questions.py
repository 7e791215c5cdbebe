"""Questions with answers, alone and with passages, in every format."""

import json

import pytest

from bert_jax.data.readers.candidate_columns import RankingOptions
from bert_jax.data.readers.open_questions import (
    OpenQuestionOptions,
    read_open_questions,
    read_passages,
)
from bert_jax.errors import UserError

DPR = [
    {
        "question": "who sat",
        "answers": ["The cat", "cat"],
        "positive_ctxs": [{"title": "T", "text": "a cat", "score": 9.1, "passage_id": "7"}],
        "negative_ctxs": [{"title": "", "text": "n"}],
        "hard_negative_ctxs": [{"title": "H", "text": "h"}],
    }
]
SQUAD = {
    "data": [
        {
            "title": "A_cat",
            "paragraphs": [
                {
                    "context": "the cat sat",
                    "qas": [
                        {
                            "id": "q",
                            "question": "who sat",
                            "answers": [{"text": "cat", "answer_start": 4}],
                        },
                        {"id": "r", "question": "why", "answers": [], "is_impossible": True},
                    ],
                }
            ],
        }
    ]
}
RESULTS = {
    "id": "x",
    "question": "who sat",
    "answers": ["cat"],
    "ctxs": [{"id": "1", "title": "T", "text": "a", "score": "8.5", "has_answer": False}],
}


@pytest.mark.parametrize(
    ("name", "content", "questions"),
    [
        ("a.json", json.dumps(DPR), [("who sat", ("The cat", "cat"), "0")]),
        ("a.json", json.dumps(SQUAD), [("who sat", ("cat",), "q"), ("why", (), "r")]),
        ("a.jsonl", json.dumps(RESULTS), [("who sat", ("cat",), "x")]),
        ("a.jsonl", '{"query": "why", "answer": "so"}', [("why", ("so",), "0")]),
        ("a.tsv", "qid\tquestion\tanswer\n7\twhy\tso\n", [("why", ("so",), "7")]),
        # DPR's questions, one of its files with the ending .csv; several answers in a cell
        ("a.tsv", "why\t['so', \"it's\"]\n", [("why", ("so", "it's"), "0")]),
        ("nq-test.qa.csv", "who, then\t['so', 'no']\n", [("who, then", ("so", "no"), "0")]),
        ("a.tsv", "why\tso\n", [("why", ("so",), "0")]),
        ("a.csv", 'question,answers\nwhy,"[""so"", ""\\u00e9""]"\n', [("why", ("so", "é"), "0")]),
        ("a.txt", "why\nwhen\n", [("why", None, "0"), ("when", None, "1")]),
    ],
)
def test_questions_to_ask(tmp_path, name, content, questions):
    (tmp_path / name).write_text(content)
    found = read_open_questions(tmp_path / name)
    assert [(each.input, each.label, each.id) for each in found] == questions


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.json", json.dumps(DPR), [("who sat", (("T", "a cat"), ("H", "h"), "n"))]),
        (
            "a.json",
            json.dumps(SQUAD),
            [(question, (("A cat", "the cat sat"),)) for question in ("who sat", "why")],
        ),
        ("a.jsonl", json.dumps(RESULTS), [("who sat", (("T", "a"),))]),
        (
            "a.jsonl",
            '{"question": "why", "answers": "so", "passages": ["a", {"text": "b"}]}',
            [("why", ("a", "b"))],
        ),
    ],
)
def test_questions_with_passages(tmp_path, name, content, expected):
    (tmp_path / name).write_text(content)
    found = list(read_passages(tmp_path / name, RankingOptions(titles="pair")))
    assert [(each.input.query, each.input.documents) for each in found] == expected
    asked = read_open_questions(tmp_path / name)
    assert [each.label for each in found] == [each.label for each in asked]


@pytest.mark.parametrize("name", ["corpus", "label_column", "require_positive"])
def test_options_without_a_use_are_refused(name):
    with pytest.raises(UserError, match=f"^data.{name} is 'x'; leave it out: a reader's file has"):
        list(read_passages("a.jsonl", RankingOptions(**{name: "x"})))


def test_damaged_questions_are_refused_with_their_place(tmp_path):
    file = tmp_path / "a.jsonl"
    for content, message in [
        (
            '{"question": "why"}\n{"answers": ["so"]}',
            r"a.jsonl:2: there is no question; give one as",
        ),
        ('{"question": " "}', r"a.jsonl:1: there is no question; give one as 'question'"),
        (
            '{"question": "why", "answers": [7]}',
            r"a.jsonl:1: 'answers' must be a text, a list of t",
        ),
    ]:
        file.write_text(content)
        with pytest.raises(UserError, match=message):
            list(read_open_questions(file))
    (tmp_path / "a.tsv").write_text("question\tanswers\nwhy\t['so\n")
    with pytest.raises(UserError, match=r"a.tsv:2: 'answers' is ..'so., which begins as a list"):
        list(read_open_questions(tmp_path / "a.tsv"))
    (tmp_path / "a.tsv").write_text("frage\tantwort\tid\nwhy\tso\t1\n")
    with pytest.raises(UserError, match=r"a.tsv:2: there is no question; .* the name of a col"):
        list(read_open_questions(tmp_path / "a.tsv"))
    # Answers are no passages.
    for rest in ('"passages": []', '"ctxs": null', '"x": 1'):
        file.write_text(f'{{"question": "why", "answer": "so", {rest}}}')
        with pytest.raises(UserError, match=r"a.jsonl:1: the question has no passages; give some,"):
            list(read_passages(file, RankingOptions()))
    with pytest.raises(UserError, match="^data.format is 'xml'; "):
        OpenQuestionOptions(format="xml")


def test_columns_of_passages_that_are_not_read(tmp_path):
    line = {"question": "who", "answers": ["cat"], "ctxs": [{"text": "a cat"}], "target": "x"}
    (tmp_path / "a.jsonl").write_text(json.dumps(line))
    files = []
    assert len(list(read_passages(tmp_path / "a.jsonl", RankingOptions(), files.append))) == 1
    assert [file.unread for file in files] == [("target",)]
