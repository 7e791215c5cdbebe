"""Tagged sentences from columns and JSON lines."""

import csv
import dataclasses
import json

import pytest

from bert_jax.data.examples import Sentence
from bert_jax.data.readers.columns import TextOptions
from bert_jax.data.readers.tagged import TaggedOptions, open_sentences, read_tagged
from bert_jax.errors import UserError


def write(path, *records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_json_lines(tmp_path):
    path = write(
        tmp_path / "a.jsonl",
        {"tokens": ["EU", "rejects"], "ner_tags": ["B-ORG", "O"], "id": 7},
        {"words": ["New York"], "tags": ["B-LOC"]},
        {"words": [], "tags": []},
    )
    found = list(read_tagged(path))
    assert [(one.input.words, one.label, one.id) for one in found] == [
        (("EU", "rejects"), ("B-ORG", "O"), "7"),
        (("New York",), ("B-LOC",), "1"),
        ((), (), "2"),
    ]
    assert found[1].location == f"{path}:2"


def test_rows_without_an_id_are_numbered(tmp_path):
    path = write(tmp_path / "a.jsonl", *({"words": ["a"], "id": id} for id in (None, "", 7)))
    assert [one.id for one in read_tagged(path)] == ["0", "1", "7"]


def test_json_lines_without_tags(tmp_path):
    path = write(tmp_path / "a.jsonl", {"words": ["EU"]}, {"words": ["EU"], "tags": None})
    assert [one.label for one in read_tagged(path)] == [None, None]
    with pytest.raises(UserError, match=r"a.jsonl:1: there is no list of tags \('tags', "):
        list(read_tagged(path, needs_tags=True))


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"words": ["a", "b"], "tags": ["O"]}, "a.jsonl:1: 2 words, but 1 tags; fix the line"),
        ({"text": "a b"}, "a.jsonl:1: there is no list 'words' or 'tokens'; give one"),
        ({"words": "a b"}, "a.jsonl:1: 'words' is not a list of strings"),
        ({"tokens": ["a"], "ner_tags": [3]}, "a.jsonl:1: 'ner_tags' is not a list of strings"),
    ],
)
def test_malformed_records(tmp_path, record, message):
    with pytest.raises(UserError, match=message):
        list(read_tagged(write(tmp_path / "a.jsonl", record)))


@pytest.mark.parametrize(
    ("name", "form", "expected"),
    [
        ("eng.testa", "", True),
        ("train.txt.gz", "", True),
        ("train.JSONL.gz", "", False),
        ("-", "", True),
        ("train.jsonl", "conll", True),
        ("train.txt", "jsonl", False),
        ("train.tsv", "", True),
        ("train.csv.gz", "", False),
        ("tfds:conll2003", "", False),
    ],
)
def test_what_a_file_is(name, form, expected):
    assert TaggedOptions(format=form).is_conll(name) == expected


def test_columns_are_read_with_their_options(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("#\tx\n1\tBonn\tB-LOC\tO\n")
    options = TaggedOptions(word_column=1, tag_column=2, comments="#")
    (found,) = read_tagged(path, options)
    assert (found.input.words, found.label) == (("Bonn",), ("B-LOC",))


@pytest.mark.parametrize(
    ("name", "content", "options"),
    [
        ("a.jsonl", '{"tokens": ["EU", "said"], "ner_tags": [1, 0]}', {}),
        ("a.jsonl", '{"tokens": ["EU", "said"], "ner_tags": ["1", "0"]}', {}),
        ("a.jsonl", '{"w": ["EU", "said"], "t": ["B-ORG", "O"]}', {"text_column": "w"}),
        ("a.txt", "EU 1\nsaid 0\n", {}),
        ("a.csv", 'words,ner_tags\nEU said,"[1, 0]"\n', {}),
        ("a.csv", "words,ner_tags\nEU said,[1 0]\n", {}),
        ("a.csv", "0,EU\n0,said\n".replace("0,EU", "0,1.0,EU").replace("0,said", "0,0.0,said"), {
            "header": False, "text_column": "2", "label_column": "1", "id_column": "0",
        }),
    ],
)  # fmt: skip
def test_tags_as_numbers(tmp_path, name, content, options):
    path = tmp_path / name
    path.write_text(content)
    options = TaggedOptions(**{"label_column": "t" if "w" in options.values() else "", **options})
    named = dataclasses.replace(options, labels=("O", "B-ORG"))
    assert [(one.input.words, one.label) for one in read_tagged(path, named)] == [
        (("EU", "said"), ("B-ORG", "O"))
    ]


KAGGLE = """\
Sentence #,Word,POS,Tag
Sentence: 1,EU,NNP,B-ORG
,rejects,VBZ,O
,\"\"\"\",``,O
,[1],CD,O
Sentence: 2,New York,NNP,B-LOC
"""
FIRST = ("EU", "rejects", '"', "[1]"), ("B-ORG", "O", "O", "O"), "Sentence: 1"
SECOND = ("New York",), ("B-LOC",), "Sentence: 2"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (KAGGLE, [FIRST, SECOND]),
        (KAGGLE.replace("\n,", "\nSentence: 1,"), [FIRST, SECOND]),
        (
            "Sentence #,Sentence,POS,Tag\n"
            "1,EU said,\"['NNP', 'VBD']\",\"['B-ORG', 'O']\"\n2,no,\"['UH']\",\"['O']\"\n",
            [(("EU", "said"), ("B-ORG", "O"), "1"), (("no",), ("O",), "2")],
        ),
        (
            "words,labels\n\"['EU', 'said']\",B-ORG O\n\"( a, b )\",O O O O\n[],[]\n",
            [
                (("EU", "said"), ("B-ORG", "O"), "0"),
                (("(", "a,", "b", ")"), ("O", "O", "O", "O"), "1"),
                ((), (), "2"),
            ],
        ),
        ("sentence_id,words,labels\n1,EU,\n1,said,\n", [(("EU", "said"), None, "1")]),
    ],
)
def test_tables(tmp_path, content, expected):
    path = tmp_path / "a.csv"
    path.write_text(content)
    assert [(one.input.words, one.label, one.id) for one in read_tagged(path)] == expected
    path = tmp_path / "a.tsv"
    rows = csv.reader(content.splitlines())
    path.write_text("".join("\t".join(row) + "\n" for row in rows))
    found = read_tagged(path, TaggedOptions(format="tsv", quotes="none"))
    assert [(one.input.words, one.label, one.id) for one in found] == expected


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "words,tags\nEU said,O\n", "a.csv:2: 2 words, but 1 tags; fix the line"),
        ("a.csv", "words,tags\n\"['New York', 'no']\",O O O\n", "a.csv:2: 2 words, but 3 tags"),
        ("a.csv", 'words,tags\nEU said,"(1, 0)"\n', "a.csv:2: 'tags' is not a list of strings but"),
        ("a.csv", "words,tags\n\"['EU'\",O\n", "a.csv:2: 'words' is \"['EU'\", which looks like"),
        ("a.csv", "words,tags\nEU,[O]\n", "a.csv:2: 'tags' is '[O]', which looks like a list, but"),
        ("a.csv", "word,tag\nEU,O\nsaid,O\n", "a.csv:3: every row has one word, but no column has"),
        ("a.csv", "sent_id,word,tag\n1,a,O\n2,b,O\n1,c,O\n", "a.csv:4: the sentence '1' has rows"),
        ("a.csv", "sent_id,word,tag\n1,a,O\n1,b,\n", "a.csv:2: 2 words, but 1 tags; fix the line:"),
        ("a.csv", "a,b\n1,2\n", "a.csv:1: no column has a usual name of words (words, tokens, wo"),
        ("a.tsv", "Word\tTag\nEU\tO\n", "a.tsv:1: the line is a header, which columns of words do"),
    ],
)
def test_malformed_tables(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(UserError) as error:
        list(read_tagged(path))
    assert message in str(error.value)


def test_tables_to_predict(tmp_path):
    """Words in the rows of a sentence, or in cells; a table of texts is none of words."""

    def entries(content, **options):
        path = tmp_path / "a.csv"
        path.write_text(content)
        reading = TaggedOptions(format="csv", **options)
        with open_sentences(path, reading, TextOptions(**options)) as found:
            return [(one.input, one.fields, one.id, one.label_field) for one in found]

    other = {"Sentence #": "Sentence: 2", "POS": ["NNP"], "Tag": ["B-LOC"]}
    assert entries(KAGGLE)[1] == (Sentence(("New York",)), other, "Sentence: 2", "Tag")
    assert entries("words,label\nEU said,x\n") == [
        (Sentence(("EU", "said")), {"label": "x"}, "0", "label")
    ]
    assert entries("sent_id,word\n1,a\n1,b c\n") == [
        (Sentence(("a", "b c")), {"sent_id": "1"}, "1", "")
    ]
    assert entries("text,words\na b,c\n", text_column="text") == [("a b", {"words": "c"}, "0", "")]
    assert entries("text\na b\n") == [("a b", {}, "0", "")]


def test_an_unknown_format():
    with pytest.raises(UserError, match="data.format is 'xml'; known are conll, jsonl"):
        list(read_tagged("a.conll", TaggedOptions(format="xml")))
