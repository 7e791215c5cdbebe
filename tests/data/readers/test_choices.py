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
    rows = [
        ({"prompt": "p", "choices": ["x", "y"], "label": 1}, ("p", "", ("x", "y"), 1, "0")),
        (
            {"context": "c", "question": "q", "options": ["x", "y"], "answer": "A"},
            ("c", "q", ("x", "y"), 0, "0"),
        ),
        (
            {"question": "q", "choices": ["x", "y", "z"], "answer": "z", "id": 5},
            ("q", "", ("x", "y", "z"), 2, "5"),
        ),
        ({"ctx": "h", "endings": ["x", "y"], "label": "1"}, ("h", "", ("x", "y"), 1, "0")),
        ({"prompt": "p", "choices": ["B", "A"], "label": "B"}, "could mean two of the 2 choices"),
        ({"prompt": "p", "choices": ["1", "2"], "label": "1"}, "could mean two of the 2 choices"),
        ({"prompt": "p", "choices": ["1", "2"], "label": 1}, ("p", "", ("1", "2"), 1, "0")),
        ({"prompt": "p", "choices": ["x", "y"], "label": -1}, ("p", "", ("x", "y"), None, "0")),
        # As a table has it.
        ({"prompt": "p", "choices": ["x", "y"], "label": "-1"}, ("p", "", ("x", "y"), None, "0")),
        ({"prompt": "p", "choices": ["x", "y"]}, ("p", "", ("x", "y"), None, "0")),
    ]
    for row, expected in rows:
        if isinstance(expected, str):
            with pytest.raises(UserError, match=f"a.jsonl:1: .*{expected}"):
                choices("a.jsonl", json.dumps(row))
        else:
            assert choices("a.jsonl", json.dumps(row)) == [expected]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", SWAG.replace("sleeps.,2", "sleeps.,4"), "a.csv:2: the answer '4' is none of the"),
        ("a.csv", SWAG.replace(",,,1", ",,,2"), r"a.csv:3: the answer '2' is none of the 2 choice"),
        ("a.csv", SWAG.replace("sings.,,,1", ",,,1"), "a.csv:3: 1 choices, but there must be two"),
        ("a.csv", SWAG.replace("runs.,sings.", ",sings."), "a.csv:2: the choice 1 is empty; fix"),
        ("a.csv", SWAG.replace(",,,1", ",,,"), "a.csv:3: the row has no answer; give every row on"),
        ("a.csv", SWAG.replace("s.,2", "s.,"), "a.csv:3: the row has an answer, but the rows befo"),
        ("a.csv", SWAG.replace("sent2", "sent3"), "a.csv:2: there is no 'sent2', only '', 'video-"),
        ("a.csv", "a,b\n1,2\n", "a.csv:2: no choices as in swag, cosmos, arc, jsonl; there"),
        ("a.jsonl", '{"prompt": "p", "choices": "x"}', "a.jsonl:1: no choices as in swag"),
        ("a.jsonl", '{"choices": ["x", "y"]}', "a.jsonl:1: there is no 'question', only 'choices'"),
        ("a.jsonl", '{"prompt": "", "choices": ["x", "y"]}', "a.jsonl:1: the prompt is empty; fix"),
        ("a.jsonl", '{"prompt": "p", "choices": ["x", 2]}', "'choice 1' is not a string but int"),
        ("a.jsonl", '{"prompt": "p", "choices": [], "label": 0}', "a.jsonl:1: 0 choices, but ther"),
        (
            "a.jsonl",
            '{"prompt": "p", "choices": ["x", "y"], "label": true}',
            "a.jsonl:1: the answer True is none of the 2 choices",
        ),
        (
            "a.jsonl",
            '{"question": {"stem": "q", "choices": [{"text": "x"}]}}',
            'a.jsonl:1: choices are not of the form {"label", "text"}; fix the line',
        ),
        (
            "a.jsonl",
            '{"question": "q", "choices": {"label": ["A", "A"], "text": ["x", "y"]}}',
            r"a.jsonl:1: 2 choices with the labels \['A', 'A'\]; give each its own",
        ),
        (
            "a.jsonl",
            '{"question": "", "choices": {"label": ["A", "B"], "text": ["x", "y"]}, "label": "C"}',
            r"a.jsonl:1: the prompt is empty",
        ),
        (
            "a.jsonl",
            '{"question": "q", "choices": {"label": ["A", "B"], "text": ["x", "y"]}, "label": 1}',
            r"a.jsonl:1: the answer 1 is none of the 2 choices \(A, B\)",
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_place(choices, name, content, message):
    with pytest.raises(UserError, match=message):
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
