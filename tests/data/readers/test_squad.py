"""Questions of every form of file."""

import gzip
import json

import pytest

from bert_jax.data.examples import Example, GoldAnswer, Question
from bert_jax.data.readers.squad import QuestionOptions, distinct_ids, read_questions
from bert_jax.errors import UserError

SEA, SEA_4 = {"text": "The sea", "answer_start": 0}, {"text": "sea", "answer_start": 4}
ANSWERED = {
    "id": "a1",
    "question": "What was low?",
    "answers": [SEA, SEA_4],
    "is_impossible": False,
}
WITHOUT = {"id": "a2", "question": "Who sang?", "answers": [], "plausible_answers": [SEA]}
UNLABELLED = {"context": "A bird sang.", "qas": [{"id": 7, "question": "Who sang?"}]}
PARAGRAPH = {"context": "The sea was low.", "qas": [ANSWERED, WITHOUT | {"is_impossible": True}]}
SQUAD = {
    "version": "v2.0",
    "data": [
        {"title": "Sea", "paragraphs": [PARAGRAPH, UNLABELLED]},
        {"title": "Sun", "paragraphs": [{"context": "", "qas": []}]},
    ],
}


@pytest.fixture
def read(tmp_path, monkeypatch):
    """Writes a file and reads its questions."""
    monkeypatch.chdir(tmp_path)

    def read(name, content, **options):
        if not isinstance(content, str | bytes):
            content = json.dumps(content)
        data = content if isinstance(content, bytes) else content.encode()
        (tmp_path / name).write_bytes(data)
        return list(read_questions(name, QuestionOptions(**options)))

    return read


LOW, SANG = Question("What was low?", "The sea was low."), Question("Who sang?", "The sea was low.")
BIRD, GOLD = Question("Who sang?", "A bird sang."), (GoldAnswer("The sea", 0), GoldAnswer("sea", 4))
EXPECTED = [
    Example(LOW, GOLD, "a1", "dev.json: data[0].paragraphs[0].qas[0]"),
    Example(SANG, (), "a2", "dev.json: data[0].paragraphs[0].qas[1]"),
    Example(BIRD, None, "7", "dev.json: data[0].paragraphs[1].qas[0]"),
]


def test_squad_by_hand(read, monkeypatch):
    monkeypatch.setattr("bert_jax.data.readers.lines.LINE_BYTES", 100)  # the file is one line
    assert read("dev.json", SQUAD) == EXPECTED
    lines = json.dumps(SQUAD, indent=1).replace("\n", "\r\n")
    assert read("dev.json", "\ufeff" + lines) == EXPECTED
    packed = read("dev.json.gz", gzip.compress(json.dumps(SQUAD).encode()))
    assert [question.label for question in packed] == [item.label for item in EXPECTED]
    assert len(read("questions", SQUAD, format="squad")) == 3


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ('"answers": {"text": ["sea"], "answer_start": [4]}', (GoldAnswer("sea", 4),)),
        ('"answers": {"text": "sea", "answer_start": 4}', (GoldAnswer("sea", 4),)),
        ('"answers": {"text": ["sea", "The"]}', (GoldAnswer("sea", -1), GoldAnswer("The", -1))),
        ('"answers": [{"text": "sea", "start": 4}]', (GoldAnswer("sea", 4),)),
        ('"answers": ["sea", "The sea"]', (GoldAnswer("sea", -1), GoldAnswer("The sea", -1))),
        ('"answer": "sea"', (GoldAnswer("sea", -1),)),
        ('"answer": "sea", "answer_start": 4', (GoldAnswer("sea", 4),)),
        ('"answers": []', ()),
        ('"answers": {"text": [], "answer_start": []}', ()),
        ('"answer": ""', ()),
        ('"answers": [{"text": " ", "answer_start": 0}]', ()),
        ('"is_impossible": true', ()),
        ('"answers": null, "is_impossible": true', ()),
        ('"is_impossible": false', None),
        ('"answers": null', None),
    ],
)
def test_forms_of_answers(read, fields, expected):
    line = '{"question": "What?", "context": "The sea", ' + fields + "}\n"
    example = Example(Question("What?", "The sea"), expected, "0", "a.jsonl:1")
    assert read("a.jsonl", line) == [example]
    # The same object below "data", as others export data sets.
    (same,) = read("a.json", f'{{"data": [{line}]}}')
    assert (same.label, same.location) == (expected, "a.json: data[0]")
    (same,) = read("a.json", f"[{line}]")
    assert (same.label, same.location) == (expected, "a.json: [0]")


def test_rows(read):
    lines = """\
{"id": "x", "question": "What?", "passage": "The sea", "context": "not this"}

{"question": "Who?", "context": "A bird"}
"""
    assert [(each.id, each.input.passage, each.location) for each in read("a.jsonl", lines)] == [
        ("x", "The sea", "a.jsonl:1"),
        ("1", "A bird", "a.jsonl:3"),
    ]
    table = "nr,Frage,Text,Antwort\r\n1,Wer?,Die See,See\r\n2,Was?,Die Sonne,\r\n"
    names = {"question_column": "Frage", "passage_column": "Text", "answers_column": "Antwort"}
    rows = read("a.csv", table, **names, id_column="nr")
    assert [(each.id, each.input, each.label) for each in rows] == [
        ("1", Question("Wer?", "Die See"), (GoldAnswer("See", -1),)),
        ("2", Question("Was?", "Die Sonne"), ()),
    ]


def test_equal_ids(read):
    # The second row has the number 1 as its id.
    lines = '{"id": 1, "question": "a", "passage": "b"}\n{"question": "a", "passage": "b"}\n'
    message = "a.jsonl:2: the id '1' was already used at a.jsonl:1; give each question its own"
    with pytest.raises(UserError, match=message):
        list(map(distinct_ids(), read("a.jsonl", lines)))
    same = {"data": [SQUAD["data"][0], SQUAD["data"][0]]}
    message = (
        r"a.json: data\[1\].paragraphs\[0\].qas\[0\]: the id 'a1' was already used at "
        r"a.json: data\[0\].paragraphs\[0\].qas\[0\]"
    )
    with pytest.raises(UserError, match=message):
        list(map(distinct_ids(), read("a.json", same)))
    assert list(map(distinct_ids(), EXPECTED)) == EXPECTED


ROW = '{"question": "a", "passage": "b", "answers": %s}'


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", '{"data": [\n{"a": ]}', ":2: not valid JSON: Expecting value, column 7"),
        ("a.json", '{"a": 1}\n{"a": 1}\n', ":2: .* an object a line, set data.format=jsonl"),
        ("a.json", "[" * 100_000, ": not valid JSON: maximum recursion depth exceeded"),
        (
            "a.json",
            "7",
            ": there is no list data; give JSON in the form of SQuAD, or an object on each l",
        ),
        ("a.json", {"data": [1]}, r": data\[0\] is not an object but int"),
        ("a.json", {"data": [{"paragraphs": [{"context": "b"}]}]}, r": there is no list dat"),
        ("a.json", {"data": [{"paragraphs": [{"qas": []}]}]}, r": data\[0\].paragraphs\[0\]"),
        ("a.json", b'{"data": "\xe9"}', r":1: byte 11 of the line \(0xe9\) is not UTF-8"),
        (
            "a.json",
            '{"data": [{"question": "\\ud83d", "passage": "b"}]}',
            r": data\[0\]: half of a surrogate pair is not a character",
        ),
        ("a.jsonl", ROW % "[]" + "\ndamaged", ":2: not valid JSON"),
        ("a.jsonl", '{"question": "a"}', ":1: there is no 'context', only 'question'; ren"),
        ("a.jsonl", '{"passage": "a"}', ":1: there is no 'question', only 'passage'"),
        ("a.jsonl", '{"question": 1, "passage": "b"}', ":1: 'question' is not a string but"),
        ("a.jsonl", ROW % "5", ":1: 'answers' must be a text, a list of texts, or of"),
        ("a.jsonl", ROW % "[5]", ":1: 'answers' must be a text"),
        ("a.jsonl", ROW % '[{"text": "b", "start": "x"}]', ":1: the start of an answer is 'x', no"),
        (
            "a.jsonl",
            ROW % '{"text": ["b"], "answer_start": []}',
            ":1: its answers need one 'answer_start' for each text",
        ),
        ("a.jsonl", ROW % '{"start": [1]}', ":1: its answers have no 'text'"),
        ("a.xml", "<a/>", ": its ending names no format; set data.format to one of"),
    ],
)
def test_errors(read, name, content, message):
    with pytest.raises(UserError, match=f"{name}{message}"):
        read(name, content)
