"""Multiple choice in every layout."""

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
    """Writes a file, or records as JSON lines, and reads (prompt, question, choices, label, id)."""

    def read(name, content, needs_labels=False, **options):
        path = tmp_path / name
        if not isinstance(content, str):
            content = "".join(json.dumps(record) + "\n" for record in content)
        path.write_text(content)
        examples = read_choices(path, ChoiceOptions(**options), needs_labels=needs_labels)
        return [
            (each.input.prompt, each.input.question, each.input.choices, each.label, each.id)
            for each in examples
        ]

    return read


SWAG = """\
,video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label
0,a_1,3416,"He sits. He","He sits.",He,gold,"eats, too.",runs.,sings.,sleeps.,2
1,a_2,3417,She runs. She,She runs.,She,gen,eats.,sings.,,,1
"""


def test_swag_and_cosmos(choices):
    expected = [
        ("He sits.", "", ("He eats, too.", "He runs.", "He sings.", "He sleeps."), 2, "0"),
        ("She runs.", "", ("She eats.", "She sings."), 1, "1"),
    ]
    assert choices("train.csv", SWAG) == expected
    assert choices("train", SWAG, format="swag") == expected
    test = "startphrase,ending0,ending1\nHe sits. He,eats.,runs.\n"
    assert choices("test.csv", test) == [("He sits. He", "", ("eats.", "runs."), None, "0")]
    cosmos = "id,context,question,answer0,answer1,answer2,label\n7,It rained.,Why?,a,b,c,2\n"
    assert choices("a.csv", cosmos) == [("It rained.", "Why?", ("a", "b", "c"), 2, "7")]


def test_piqa_social_iqa_and_winogrande(choices):
    piqa = {"goal": "to cut", "sol1": "use a saw", "sol2": "use soap", "label": 0}
    assert choices("a.jsonl", [piqa, piqa | {"label": 1}]) == [
        ("to cut", "", ("use a saw", "use soap"), 0, "0"),
        ("to cut", "", ("use a saw", "use soap"), 1, "1"),
    ]
    siqa = {"context": "It rained.", "question": "Why?", "answerA": "a", "answerB": "b",
            "answerC": "c", "label": "3"}  # fmt: skip
    assert choices("a.jsonl", [siqa]) == [("It rained.", "Why?", ("a", "b", "c"), 2, "0")]
    wino = {"sentence": "Ann met Eve and _ smiled.", "option1": "Ann", "option2": "Eve"}
    rest = ("Ann smiled.", "Eve smiled.")
    assert choices("a.jsonl", [wino | {"answer": "2"}]) == [("Ann met Eve and", "", rest, 1, "0")]
    assert choices("a.jsonl", [wino | {"answer": ""}])[0][3] is None
    assert choices("a.jsonl", [wino | {"sentence": "_ smiled."}])[0][:3] == ("_ smiled.", "", rest)
    for row, message in [
        (siqa | {"label": "0"}, r"1: the answer '0' is none of the 3 choices \(1, 2, 3\)"),
        (wino | {"answer": "0"}, r"1: the answer '0' is none of the 2 choices \(1, 2\)"),
        (wino | {"sentence": "Ann"}, "1: 'sentence' has no blank '_', which an option fills"),
        (piqa | {"label": 2}, r"1: the answer 2 is none of the 2 choices \(0, 1\)"),
    ]:
        with pytest.raises(UserError, match=message):
            choices("a.jsonl", [row])


ARC = {"stem": "Which?", "choices": [{"text": "x", "label": "1"}, {"text": "y", "label": "2"}]}
LETTERS = [{"label": letter, "text": letter * 2} for letter in "ABC"]
LISTS = {"label": ["A", "B"], "text": ["x", "y"]}
TWO, NUMBERS = {"prompt": "p", "choices": ["x", "y"]}, {"prompt": "p", "choices": ["1", "2"]}


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"id": "7", "question": ARC, "answerKey": "2"}, ("Which?", "", ("x", "y"), 1, "7")),
        ({"question": ARC}, ("Which?", "", ("x", "y"), None, "0")),
        (
            {"question_stem": "The sun is", "choices": LETTERS, "answerKey": "C"},
            ("The sun is", "", ("AA", "BB", "CC"), 2, "0"),
        ),
        (
            {"question": "Where?", "choices": LISTS, "answerKey": "A"},
            ("Where?", "", ("x", "y"), 0, "0"),
        ),
        (TWO | {"label": 1}, ("p", "", ("x", "y"), 1, "0")),
        (
            {"context": "c", "question": "q", "options": ["x", "y"], "answer": "A"},
            ("c", "q", ("x", "y"), 0, "0"),
        ),
        (
            {"question": "q", "choices": ["x", "y", "z"], "answer": "z", "id": 5},
            ("q", "", ("x", "y", "z"), 2, "5"),
        ),
        ({"ctx": "h", "endings": ["x", "y"], "label": "1"}, ("h", "", ("x", "y"), 1, "0")),
        (NUMBERS | {"label": 1}, ("p", "", ("1", "2"), 1, "0")),
        (TWO | {"label": -1}, ("p", "", ("x", "y"), None, "0")),
        (TWO | {"label": "-1"}, ("p", "", ("x", "y"), None, "0")),  # as in a table
        (TWO, ("p", "", ("x", "y"), None, "0")),
    ],
)
def test_json_lines(choices, record, expected):
    assert choices("a.jsonl", [record]) == [expected]


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
        (
            "a,b\n1,2\n",
            "2: no choices as in swag, cosmos, arc, jsonl, piqa, siqa, wino; there is only 'a'",
        ),
        ([{"prompt": "p", "choices": "x"}], "1: no choices as in swag"),
        ([{"choices": ["x", "y"]}], "1: there is no 'question', only 'choices'"),
        ([TWO | {"prompt": ""}], "1: the prompt is empty; fix"),
        ([TWO | {"choices": ["x", 2]}], "1: 'choice 1' is not a string but int"),
        ([TWO | {"choices": []}], "1: 0 choices, but there"),
        ([TWO | {"label": 2}], r"1: the answer 2 is none of the 2 choices \(0, 1\)"),
        ([TWO | {"label": True}], "1: the answer True is none of"),
        (
            [TWO | {"choices": ["B", "A"], "label": "B"}],
            "1: the answer 'B' could mean two of the 2",
        ),
        ([NUMBERS | {"label": "1"}], "1: the answer '1' could mean two of the 2 choices"),
        ([{"question": {"choices": [{"text": "x"}]}}], "1: choices are not of the form"),
        ([{"choices": LISTS | {"label": ["A", "A"]}}], r"1: 2 choices with the labels \['A', 'A'"),
        ([{"question": "q", "choices": LISTS, "label": 1}], r"1: the answer 1 is none of .*\(A, B"),
    ],
)
def test_errors(choices, content, message):
    name = "a.csv" if isinstance(content, str) else "a.jsonl"
    with pytest.raises(UserError, match=f"{name}:{message}"):
        choices(name, content)


def test_errors_of_files_and_options(choices):
    assert choices("a.jsonl", "") == []
    with pytest.raises(UserError, match="a.txt: its ending names no format; set data.form"):
        choices("a.txt", "")
    with pytest.raises(UserError, match="data.format is 'race'; known are swag, cosmos, ar"):
        ChoiceOptions("race")
    with pytest.raises(UserError, match="a.jsonl:1: the row has no answer; give every row one"):
        choices("a.jsonl", [TWO], needs_labels=True)


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")).filter(str.strip)
ROWS = st.lists(st.tuples(TEXT, TEXT, st.lists(TEXT, min_size=2, max_size=5), st.integers(0, 1)))


@pytest.mark.slow
@given(rows=ROWS)
def test_any_choices_survive(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("choices") / "a.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["context", "question", *(f"answer{i}" for i in range(5)), "label"])
        for context, question, texts, label in rows:
            writer.writerow([context, question, *texts, *[""] * (5 - len(texts)), label])
    assert [(each.input, each.label) for each in read_choices(path)] == [
        (Choices(context, tuple(texts), question), label)
        for context, question, texts, label in rows
    ]
