"""Multiple choice in every layout, by eye."""

import csv
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.data.examples import Choices
from bert_jax.data.readers.choices import ChoiceOptions, read_choices
from bert_jax.errors import UserError


@pytest.fixture
def choices(tmp_path):
    """Writes a file and reads it as (prompt, question, choices, label, id)."""

    def read(name, content, needs_labels=False, **options):
        path = tmp_path / name
        path.write_text(content)
        found = list(read_choices(path, ChoiceOptions(**options), needs_labels=needs_labels))
        assert all(row.location.startswith(f"{path}:") for row in found)
        return [
            (row.input.prompt, row.input.question, row.input.choices, row.label, row.id)
            for row in found
        ]

    return read


SWAG = """\
,video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label
0,a_1,3416,"He sits. He","He sits.",He,gold,"eats, too.",runs.,sings.,sleeps.,2
1,a_2,3417,She runs. She,She runs.,She,gen,eats.,sings.,,,1
"""


def test_swag(choices):
    expected = [
        ("He sits.", "", ("He eats, too.", "He runs.", "He sings.", "He sleeps."), 2, "0"),
        ("She runs.", "", ("She eats.", "She sings."), 1, "1"),
    ]
    assert choices("train.csv", SWAG) == expected
    assert choices("train", SWAG, format="swag") == expected
    test = "startphrase,ending0,ending1\nHe sits. He,eats.,runs.\n"
    assert choices("test.csv", test) == [("He sits. He", "", ("eats.", "runs."), None, "0")]


def test_cosmos(choices):
    content = (
        "id,context,question,answer0,answer1,answer2,answer3,label\n7,It rained.,Why?,a,b,c,d,3\n"
    )
    assert choices("a.csv", content) == [("It rained.", "Why?", ("a", "b", "c", "d"), 3, "7")]


def test_arc_and_its_relatives(choices):
    stem = {"stem": "Which?", "choices": [{"text": "x", "label": "1"}, {"text": "y", "label": "2"}]}
    letters = [{"label": letter, "text": letter * 2} for letter in "ABC"]
    lists = {"label": ["A", "B"], "text": ["x", "y"]}
    rows = [
        {"id": "arc", "question": stem, "answerKey": "2"},
        {"id": "obqa", "question_stem": "The sun is", "choices": letters, "answerKey": "C"},
        {"id": "csqa", "question": "Where?", "choices": lists, "answerKey": "A"},
    ]
    assert choices("a.jsonl", "".join(json.dumps(row) + "\n" for row in rows)) == [
        ("Which?", "", ("x", "y"), 1, "arc"),
        ("The sun is", "", ("AA", "BB", "CC"), 2, "obqa"),
        ("Where?", "", ("x", "y"), 0, "csqa"),
    ]
    assert choices("a.jsonl", json.dumps({"question": stem})) == [
        ("Which?", "", ("x", "y"), None, "0")
    ]


def test_json_lines_of_ones_own(choices):
    two, numbers = {"prompt": "p", "choices": ["x", "y"]}, {"prompt": "p", "choices": ["1", "2"]}
    options = {"context": "c", "question": "q", "options": ["x", "y"], "answer": "A"}
    three = {"question": "q", "choices": ["x", "y", "z"], "answer": "z", "id": 5}
    rows = [
        (two | {"label": 1}, ("p", "", ("x", "y"), 1, "0")),
        (options, ("c", "q", ("x", "y"), 0, "0")),
        (three, ("q", "", ("x", "y", "z"), 2, "5")),
        ({"ctx": "h", "endings": ["x", "y"], "label": "1"}, ("h", "", ("x", "y"), 1, "0")),
        (two | {"choices": ["B", "A"], "label": "B"}, "could mean two of the 2 choices"),
        (numbers | {"label": "1"}, "could mean two of the 2 choices"),
        (numbers | {"label": 1}, ("p", "", ("1", "2"), 1, "0")),
        (two | {"label": -1}, ("p", "", ("x", "y"), None, "0")),
        (two | {"label": "-1"}, ("p", "", ("x", "y"), None, "0")),  # as a table has it
        (two, ("p", "", ("x", "y"), None, "0")),
    ]
    for row, expected in rows:
        if isinstance(expected, str):
            with pytest.raises(UserError, match=f"a.jsonl:1: .*{expected}"):
                choices("a.jsonl", json.dumps(row))
        else:
            assert choices("a.jsonl", json.dumps(row)) == [expected]


ARC = '"choices": {"label": ["A", "B"], "text": ["x", "y"]}'


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (SWAG.replace("sleeps.,2", "sleeps.,4"), "2: the answer '4' is none of the 4 choices"),
        (SWAG.replace(",,,1", ",,,2"), r"3: the answer '2' is none of the 2 choices \(0, 1\)"),
        (SWAG.replace("sings.,,,1", ",,,1"), "3: 1 choices, but there must be two or more"),
        (SWAG.replace("runs.,sings.", ",sings."), "2: the choice 1 is empty; fix"),
        (SWAG.replace(",,,1", ",,,"), "3: the row has no answer; give every row one"),
        (SWAG.replace("s.,2", "s.,"), "3: the row has an answer, but the rows before"),
        (SWAG.replace("sent2", "sent3"), "2: there is no 'sent2', only '', 'video-id'"),
        ("a,b\n1,2\n", "2: no choices as in swag, cosmos, arc, jsonl; there"),
        ('{"prompt": "p", "choices": "x"}', "1: no choices as in swag"),
        ('{"choices": ["x", "y"]}', "1: there is no 'question', only 'choices'"),
        ('{"prompt": "", "choices": ["x", "y"]}', "1: the prompt is empty; fix"),
        ('{"prompt": "p", "choices": ["x", 2]}', "1: 'choice 1' is not a string but int"),
        ('{"prompt": "p", "choices": [], "label": 0}', "1: 0 choices, but there"),
        ('{"prompt": "p", "choices": ["x", "y"], "label": true}', "1: the answer True is none of"),
        ('{"question": {"stem": "q", "choices": [{"text": "x"}]}}', "1: choices are not of the fo"),
        (
            f'{{"question": "q", {ARC.replace("B", "A")}}}',
            r"1: 2 choices with the labels \['A', 'A'",
        ),
        (f'{{"question": "", {ARC}, "label": "C"}}', r"1: the prompt is empty"),
        (f'{{"question": "q", {ARC}, "label": 1}}', r"1: the answer 1 is none of .* \(A, B\)"),
    ],
)
def test_what_is_wrong_is_said_with_its_location(choices, content, message):
    name = "a.jsonl" if content.startswith("{") else "a.csv"
    with pytest.raises(UserError, match=f"{name}:{message}"):
        choices(name, content)


def test_files_and_options_that_are_none(choices):
    assert choices("a.jsonl", "") == []
    with pytest.raises(UserError, match="a.txt: its ending names no format; set data.form"):
        choices("a.txt", "")
    with pytest.raises(UserError, match="data.format is 'race'; known are swag, cosmos, ar"):
        ChoiceOptions("race")
    with pytest.raises(UserError, match="a.jsonl:1: the row has no answer; give every row one"):
        choices("a.jsonl", '{"prompt": "p", "choices": ["x", "y"]}', needs_labels=True)


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")).filter(str.strip)
ROWS = st.lists(st.tuples(TEXT, TEXT, st.lists(TEXT, min_size=2, max_size=5), st.integers(0, 1)))


@given(rows=ROWS)
def test_any_choices_survive(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("choices")
    expected = [
        (Choices(context, tuple(texts), question), label)
        for context, question, texts, label in rows
    ]
    with (folder / "a.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["context", "question", *(f"answer{i}" for i in range(5)), "label"])
        for context, question, texts, label in rows:
            writer.writerow([context, question, *texts, *[""] * (5 - len(texts)), label])
    with (folder / "a.jsonl").open("w", encoding="utf-8") as file:
        for context, question, texts, label in rows:
            fields = {"context": context, "question": question, "choices": texts, "label": label}
            file.write(json.dumps(fields) + "\n")
    for name in ("a.csv", "a.jsonl"):
        found = read_choices(folder / name)
        assert [(row.input, row.label) for row in found] == expected
