"""Tagged sentences from JSON lines, tables and columns."""

import csv
import json

import pytest

from bert_jax.data.examples import Sentence
from bert_jax.data.readers.columns import TextOptions
from bert_jax.data.readers.tagged import TaggedOptions, open_sentences, read_tagged
from bert_jax.errors import UserError


@pytest.fixture
def sentences(tmp_path):
    """Writes a file, or records as JSON lines, and reads (words, tags, id) of each sentence."""

    def read(name, content, needs_tags=False, **options):
        path = tmp_path / name
        if not isinstance(content, str):
            content = "".join(json.dumps(record) + "\n" for record in content)
        path.write_text(content)
        examples = read_tagged(path, TaggedOptions(**options), needs_tags=needs_tags)
        return [(each.input.words, each.label, each.id) for each in examples]

    return read


def test_json_lines(sentences):
    records = [
        {"tokens": ["EU", "rejects"], "ner_tags": ["B-ORG", "O"], "id": 7},
        {"words": ["New York"], "tags": ["B-LOC"], "id": None},
        {"words": ["a"], "id": ""},
        {"words": ["a"], "tags": None},
        {"words": [], "tags": []},
    ]
    assert sentences("a.jsonl", records) == [
        (("EU", "rejects"), ("B-ORG", "O"), "7"),
        (("New York",), ("B-LOC",), "1"),
        (("a",), None, "2"),
        (("a",), None, "3"),
        ((), (), "4"),
    ]


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
def test_whether_a_file_has_columns_of_words(name, form, expected):
    assert TaggedOptions(format=form).is_conll(name) == expected


def test_columns_of_words(sentences):
    content = "#\tx\n1\tBonn\tB-LOC\tO\n"
    options = {"word_column": 1, "tag_column": 2, "comments": "#"}
    assert sentences("a.tsv", content, **options) == [(("Bonn",), ("B-LOC",), "0")]


@pytest.mark.parametrize(
    ("name", "content", "options"),
    [
        ("a.jsonl", '{"tokens": ["EU", "said"], "ner_tags": [1, 0]}', {}),
        ("a.jsonl", '{"tokens": ["EU", "said"], "ner_tags": ["1", "0"]}', {}),
        (
            "a.jsonl",
            '{"w": ["EU", "said"], "t": ["B-ORG", "O"]}',
            {"text_column": "w", "label_column": "t"},
        ),
        ("a.txt", "EU 1\nsaid 0\n", {}),
        ("a.csv", 'words,ner_tags\nEU said,"[1, 0]"\n', {}),
        ("a.csv", "words,ner_tags\nEU said,[1 0]\n", {}),
        (
            "a.csv",
            "0,1.0,EU\n0,0.0,said\n",
            {"header": False, "text_column": "2", "label_column": "1", "id_column": "0"},
        ),
    ],
)
def test_tags_as_numbers(sentences, name, content, options):
    read = sentences(name, content, labels=("O", "B-ORG"), **options)
    assert read == [(("EU", "said"), ("B-ORG", "O"), "0")]


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
        (",words\n5,EU said\n", [(("EU", "said"), None, "0")]),  # an index of pandas
    ],
)
def test_tables(sentences, content, expected):
    assert sentences("a.csv", content) == expected
    rows = csv.reader(content.splitlines())
    content = "".join("\t".join(row) + "\n" for row in rows)
    assert sentences("a.tsv", content, format="tsv", quotes="none") == expected


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '{"words": ["a", "b"], "tags": ["O"]}', "1: 2 words, but 1 tags; fix the line"),
        ("a.jsonl", '{"text": "a b"}', "1: there is no key 'words' or another usual name o"),
        ("a.jsonl", '{"words": null}', "1: 'words' is null; give it a value, or remove the row"),
        ("a.jsonl", '{"words": "a b"}', "1: the words have no tags; give each word one"),
        ("a.jsonl", '{"words": 7}', "1: 'words' is not a list of strings"),
        ("a.jsonl", '{"tokens": ["a"], "ner_tags": [3]}', "1: 'ner_tags' is not a list of strings"),
        ("a.csv", "words,tags\nEU said,O\n", "2: 2 words, but 1 tags; fix the line"),
        ("a.csv", "words,tags\n\"['New York', 'no']\",O O O\n", "2: 2 words, but 3 tags"),
        ("a.csv", 'words,tags\nEU said,"(1, 0)"\n', "2: 'tags' is not a list of strings but of nu"),
        ("a.csv", "words,tags\n\"['EU'\",O\n", "2: 'words' is \"['EU'\", which looks like"),
        ("a.csv", "words,tags\nEU,[O]\n", "2: 'tags' is '[O]', which looks like a list, but"),
        ("a.csv", "word,tag\nEU,O\nsaid,O\n", "3: every row has one word, but no column has"),
        ("a.csv", "sent_id,word,tag\n1,a,O\n2,b,O\n1,c,O\n", "4: the sentence '1' has rows"),
        ("a.csv", "sent_id,word,tag\n1,a,O\n1,b,\n", "2: 2 words, but 1 tags; fix the line:"),
        ("a.csv", "a,b\n1,2\n", "1: no column has a usual name of words (words, tokens, wo"),
        ("a.tsv", "Word\tTag\nEU\tO\n", "1: the line is a header, which columns of words do"),
        (
            "a.jsonl",
            '{"words": ["EU"], "tags": null}',
            "1: the words have no tags; give each word one, or set data.label_column",
        ),
        (
            "a.txt",
            "\nEU\n",
            "2: the words have no tags; give each word one, or set data.tag_c",
        ),
    ],
)
def test_errors(sentences, name, content, message):
    with pytest.raises(UserError) as error:
        sentences(name, content, needs_tags=True)
    assert f"{name}:{message}" in str(error.value)


def test_an_unknown_format():
    with pytest.raises(UserError, match="data.format is 'xml'; known are conll, jsonl"):
        TaggedOptions(format="xml")


def test_tables_to_predict(tmp_path):
    """A table of words has rows of words or cells of words; any other is a table of texts."""

    def examples(content, **options):
        path = tmp_path / "a.csv"
        path.write_text(content)
        words = TaggedOptions(format="csv", **options)
        with open_sentences(path, words, TextOptions(**options)) as opened:
            return [(each.input, each.fields, each.id, each.label_field) for each in opened]

    other = {"Sentence #": "Sentence: 2", "POS": ["NNP"], "Tag": ["B-LOC"]}
    assert examples(KAGGLE)[1] == (Sentence(("New York",)), other, "Sentence: 2", "Tag")
    assert examples("words,label\nEU said,x\n") == [
        (Sentence(("EU", "said")), {"label": "x"}, "0", "label")
    ]
    assert examples("sent_id,word\n1,a\n1,b c\n") == [
        (Sentence(("a", "b c")), {"sent_id": "1"}, "1", "")
    ]
    texts = examples("text,words\na b,c\n", text_column="text")
    assert texts == [("a b", {"words": "c"}, "0", "")]
    assert examples("text\na b\n") == [("a b", {}, "0", "")]
