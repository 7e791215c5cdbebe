"""Tags of a file: columns that stay as they are, and JSON lines."""

import json
import os
import threading

import pytest

from bert_jax.data.readers.conll import add_tag_column
from bert_jax.data.readers.tagged import read_tagged
from bert_jax.errors import UserError
from bert_jax.inference.predict import predict

LABELS = ("O", "B-PER", "I-PER")


@pytest.fixture
def constant(make_labelled):
    """Calls every word a name of its own."""
    return make_labelled("tagging", LABELS, (0.0, 2.0, 0.0))


@pytest.fixture
def tagger(make_labelled):
    """Has its own opinion of every word."""
    return make_labelled("tagging", LABELS)


COLUMNS = """\
-DOCSTART- -X- -X- O

the DT I-NP O
cat  NN I-NP\tO

# of the third column
sat VBD I-VP B-WHO

"""


def test_columns_come_back_line_by_line(predict_file, constant):
    expected = """\
-DOCSTART- -X- -X- O O

the DT I-NP O B-PER
cat  NN I-NP\tO\tB-PER

# of the third column
sat VBD I-VP B-WHO B-PER

"""
    options = {"comments": "#"}
    assert predict_file(constant, COLUMNS, "in.conll", "out.conll", **options) == expected
    # A file without an extension of columns has them if the output has.
    assert predict_file(constant, COLUMNS, "test.txt", "out.txt", **options) == expected
    windows = COLUMNS.replace("\n", "\r\n").encode()
    actual = predict_file(constant, windows, "in.conll", "out.conll", **options)
    assert actual == expected  # read as text, which hides the line ends


def test_line_ends_stay(predict_file, constant, tmp_path):
    predict_file(constant, b"the\r\ncat\r\n", "in.conll", "out.conll")
    assert (tmp_path / "out.conll").read_bytes() == b"the\tB-PER\r\ncat\tB-PER\r\n"
    predict_file(constant, b"\n\n", "in.conll", "out.conll")
    assert (tmp_path / "out.conll").read_bytes() == b""  # no sentence, no line


def test_tags_in_a_chosen_scheme(predict_file, constant, make_labelled):
    expected = "the\tI-PER\ncat\tB-PER\n\nsat\tI-PER\n"
    columns = predict_file(constant, "the\ncat\n\nsat\n", "in.conll", "out.conll", scheme="iob1")
    assert columns == expected
    (line,) = predict_file(constant, "the cat\n", "in.txt", scheme="bioes").splitlines()
    assert json.loads(line)["tags"] == ["S-PER", "S-PER"]
    with pytest.raises(UserError, match="scheme is 'iob'; known are iob1, iob2, bioes"):
        predict_file(constant, "a\n", "in.txt", scheme="iob")
    model = make_labelled("tagging", ("NN", "VB"))
    problem = "^the tags of this model have no scheme: NN, VB; leave scheme out$"
    with pytest.raises(UserError, match=problem):
        predict_file(model, "a\n", "in.txt", scheme="iob1")


def test_sentences_of_columns_as_records(predict_file, constant):
    lines = predict_file(constant, COLUMNS, "in.conll", comments="#").splitlines()
    assert [json.loads(line)["words"] for line in lines] == [["the", "cat"], ["sat"]]
    assert [json.loads(line)["tags"] for line in lines] == [["B-PER"] * 2, ["B-PER"]]


def test_a_sentence_of_a_pipe_is_answered_when_it_has_ended(constant, tmp_path, capsys):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    predict_file = threading.Event()

    def write():
        with pipe.open("w") as lines:
            lines.write("the\ncat\n\n")
            lines.flush()
            assert predict_file.wait(60)

    def stopped():
        predict_file.set()
        return False

    writer = threading.Thread(target=write)
    writer.start()
    options = {"format": "conll", "progress": False}
    assert predict(constant, None, pipe, "-", options, stopped) == 1
    writer.join()
    assert json.loads(capsys.readouterr().out)["words"] == ["the", "cat"]


def test_the_column_of_words(predict_file, constant):
    actual = predict_file(constant, "1\tthe\tx\n2\tcat\tx\n", "in.conllu", word_column=1)
    assert json.loads(actual)["words"] == ["the", "cat"]
    spaced = "10 000\tx\nbirds\tx\n"
    actual = predict_file(constant, spaced, "in.conll", "out.conll", separator="tab")
    assert actual == "10 000\tx\tB-PER\nbirds\tx\tB-PER\n"


def test_texts_have_entities_with_positions(predict_file, constant, tagger):
    record = json.loads(predict_file(constant, "the  sun.\n", "in.txt"))
    assert record["words"] == ["the", "sun", "."]
    assert [(e["text"], e["start"], e["end"]) for e in record["entities"]] == [
        ("the", 0, 3),
        ("sun", 5, 8),
        (".", 8, 9),
    ]
    texts = ["the cat sat on the mat .", "", "a bird sang to the sea and it was low"]
    actual = predict_file(tagger, "".join(f"{text}\n" for text in texts), "in.txt")
    for line, expected in zip(actual.splitlines(), tagger.tag(texts, batch_size=2), strict=True):
        record = json.loads(line)
        assert record["tags"] == list(expected.tags)
        assert [e["text"] for e in record["entities"]] == [e.text for e in expected.entities]


def test_objects_with_words_or_texts(predict_file, constant, capsys):
    rows = [
        {"id": 7, "tokens": ["the", "cat"], "ner_tags": ["O", "B-WHO"], "x": 1},
        {"id": 8, "words": ["sun"], "tags": ["O"]},
        {"id": 9, "text": "it was", "tags": 1},
    ]
    actual = predict_file(constant, "".join(json.dumps(row) + "\n" for row in rows)).splitlines()
    first, second, third = map(json.loads, actual)
    assert list(first) == ["id", "tokens", "ner_tags", "x", "words", "tags", "scores", "entities"]
    # The right tags are called as ours are: they are still there.
    assert (second["expected"], second["tags"]) == (["O"], ["B-PER"])
    assert (third["expected"], third["words"]) == (1, ["it", "was"])
    columns = predict_file(
        constant, '{"words": ["the", "cat"]}\n{"text": "a b"}\n', output="out.conll"
    )
    assert columns == "the\tB-PER\ncat\tB-PER\n\na\tB-PER\nb\tB-PER\n\n"
    said = "tags are in IOB2, as the model's; for another scheme: --option scheme=iob1"
    assert capsys.readouterr().err.splitlines()[0] == said


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        ("text1,text2\na,b\n", "in.csv", "in.csv:2: a pair of texts; set data.text_column to the"),
        ("-DOCSTART- O\n\na x\n", "in.txt", "in.txt:1: -DOCSTART- marks a file in columns; if"),
    ],
)
def test_errors_leave_nothing(predict_file, listing, constant, content, name, message):
    with pytest.raises(UserError, match=message):
        predict_file(constant, content, name)
    assert listing() == {name}


# The files of an evaluation: predicted tags beside the lines that they are for.

IOB1 = "-DOCSTART- -X- O\r\n\r\nEU NNP I-ORG\r\nin IN O\r\n\r\nPeter NNP I-PER\r\nJan NNP B-PER\r\n"
PREDICTED = [["I-ORG", "O"], ["I-PER", "B-PER"]]


@pytest.fixture
def examples(tmp_path):
    def read(text, name="dev.txt"):
        path = tmp_path / name
        path.write_bytes(text.encode())
        return list(read_tagged(path))

    return read


FIRST = "-DOCSTART- -X- O O\r\n\r\nEU NNP I-ORG I-ORG\r\nin IN O O\r\n\r\n"
SECOND = "Peter NNP I-PER I-PER\r\nJan NNP B-PER B-PER\r\n"
OBJECT = '{"words": ["EU", "in"], "tags": ["B-ORG", "O"]}\n'


@pytest.mark.parametrize(
    ("name", "content", "chosen", "tags", "expected"),
    [
        ("dev.txt", IOB1, slice(2), PREDICTED, FIRST + SECOND),
        ("dev.txt", IOB1, slice(1), PREDICTED[:1], FIRST),  # a part of the file
        ("dev.txt", IOB1, slice(1, 2), PREDICTED[1:], SECOND),
        ("dev.txt", "EU\nin\n\nPeter\nJan\n", slice(2), PREDICTED,
         "EU\tI-ORG\nin\tO\n\nPeter\tI-PER\nJan\tB-PER\n"),
        ("dev.txt", "EU NNP\nin IN\n", slice(1), [["IN", "NNP"]], "EU NNP IN\nin IN NNP\n"),
        ("dev.jsonl", OBJECT, slice(1), [["O", "O"]], "EU\tB-ORG\tO\nin\tO\tO\n\n"),
    ],
)  # fmt: skip
def test_the_file_with_a_further_column(examples, name, content, chosen, tags, expected):
    assert add_tag_column(examples(content, name)[chosen], tags) == expected


def test_sentences_of_several_files_become_columns(examples):
    both = [examples(IOB1)[1], *examples("a O\n", "other.txt")]
    assert add_tag_column(both, [["I-PER", "O"], ["O"]]) == (
        "Peter\tI-PER\tI-PER\nJan\tB-PER\tO\n\na\tO\tO\n\n"
    )
