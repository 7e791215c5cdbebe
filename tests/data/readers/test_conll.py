"""Words in columns: reading, errors, and predicted tags as one more column."""

import gzip
import io

import hypothesis
import hypothesis.strategies as st
import pytest

from bert_jax.data.readers.conll import (
    ColumnOptions,
    as_columns,
    read_sentences,
    with_tag_column,
)
from bert_jax.data.readers.lines import Lines, open_lines
from bert_jax.errors import UserError

CONLL = """\
-DOCSTART- -X- O O

EU NNP I-NP I-ORG
rejects VBZ I-VP O

-DOCSTART- -X- O O
Peter NNP I-NP I-PER
"""


def examples_of(text, **options):
    lines = Lines("f.txt", io.BufferedReader(io.BytesIO(text.encode())))
    return list(read_sentences(lines, ColumnOptions(**options)))


def sentences_of(text, **options):
    """Words and tags of each sentence."""
    return [(each.input.words, each.label) for each in examples_of(text, **options)]


def with_tags(text, *tags, **options):
    """The lines of a file, with these tags as one more column."""
    examples = examples_of(text, **options)
    return "".join(
        with_tag_column(each.input, each.label, row)
        for each, row in zip(examples, tags, strict=True)
    )


def test_words_tags_ids_and_locations():
    first, second = examples_of(CONLL)
    assert (first.input.words, first.label) == (("EU", "rejects"), ("I-ORG", "O"))
    assert (first.id, first.location) == ("0", "f.txt:3")
    assert (second.input.words, second.label) == (("Peter",), ("I-PER",))
    assert (second.id, second.location) == ("1", "f.txt:7")


@pytest.mark.parametrize(
    ("word_column", "tag_column", "words", "tags"),
    [
        (0, -1, ("EU", "rejects"), ("I-ORG", "O")),
        (0, 2, ("EU", "rejects"), ("I-NP", "I-VP")),
        (-3, 1, ("NNP", "VBZ"), None),  # the column of the words
        (0, 4, ("EU", "rejects"), None),
        (0, -5, ("EU", "rejects"), None),
    ],
)
def test_columns_by_number(word_column, tag_column, words, tags):
    first, _ = sentences_of(CONLL, word_column=word_column, tag_column=tag_column)
    assert first == (words, tags)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a\tO\r\nb\tB-X\r\n\r\nc\tO\r\n", [("a", "b"), ("c",)]),
        ("\ufeffa O\nb O", [("a", "b")]),
        ("a O\n \t\nb O\n\n\n\n\n", [("a",), ("b",)]),
        ("a O\n\ufeff", [("a",)]),  # the end of WNUT's validation file
        ("  a \t O  \nb    O\n", [("a", "b")]),
        ("10\u00a0000 O\n\u3000 O\n", [("10\u00a0000", "\u3000")]),
        ("# O\n", [("#",)]),
        ("", []),
        ("\n\n", []),
    ],
)
def test_blanks_line_ends_and_byte_order_marks(text, words):
    assert [each for each, _ in sentences_of(text)] == words


def test_files_without_tags_with_comments_or_with_tabs():
    assert sentences_of("EU\nrejects\n\ncalls\n") == [(("EU", "rejects"), None), (("calls",), None)]
    text = "#\thttp://news\t[2010]\n1\tBonn\tB-LOC\tO\n2\t#\tO\tO\n"
    options = {"word_column": 1, "tag_column": 2, "comments": "#"}
    assert sentences_of(text, **options) == [(("Bonn", "#"), ("B-LOC", "O"))]
    text = "New York\tB-LOC\nis \tO\n"
    assert sentences_of(text, separator="tab") == [(("New York", "is"), ("B-LOC", "O"))]


UD = """\
# sent_id = 0
# text = vámonos  al\u00a0mar 10 000
1-2\tvámonos\t_\t_\t_\t_\t_\t_\t_\t_
1\tvamos\tir\tVERB\tV\t_\t0\troot\t_\t_
2\tnos\tnosotros\tPRON\tP\t_\t1\tobj\t_\t_
2.1\t#\t#\tNOUN\tN\t_\t_\t_\t1:obl\t_
3\t10 000\t10 000\tNUM\tN\t_\t1\tobl\t_\t_

# a comment of the second sentence
1\t#\t#\tSYM\tS\t_\t0\troot\t_\tNER=O
"""


def test_conll_u_has_comments_ranges_and_empty_nodes():
    words = ("vamos", "nos", "10 000")
    assert sentences_of(UD) == [(words, ("VERB", "PRON", "NUM")), (("#",), ("SYM",))]
    assert [tags for _, tags in sentences_of(UD, tag_column=4)] == [("V", "P", "N"), ("S",)]
    assert sentences_of(UD, word_column=2)[0][0] == ("ir", "nosotros", "10 000")
    assert [each.location for each in examples_of(UD)] == ["f.txt:4", "f.txt:10"]
    # The first row of a file may be an empty node; lines of fewer columns are of another format.
    assert sentences_of("0.1\t" + "_\t" * 8 + "_\n1\tgo" + "\tX" * 8) == [(("go",), ("X",))]
    assert sentences_of("1 a O\n1-2 b O\n") == [(("1", "1-2"), ("O", "O"))]


def test_predictions_of_conll_u_are_read_again():
    text = with_tags(UD, ["A", "B", "C"], ["D"])
    assert text.splitlines()[1:6] == [
        "# text = vámonos  al\u00a0mar 10 000",
        "1-2\tvámonos\t_\t_\t_\t_\t_\t_\t_\t_\t_",
        "1\tvamos\tir\tVERB\tV\t_\t0\troot\t_\t_\tA",
        "2\tnos\tnosotros\tPRON\tP\t_\t1\tobj\t_\t_\tB",
        "2.1\t#\t#\tNOUN\tN\t_\t_\t_\t1:obl\t_\t_",
    ]
    assert sentences_of(text) == [(("vamos", "nos", "10 000"), ("A", "B", "C")), (("#",), ("D",))]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("a O\nb\n", {}, r"f.txt:2: 1 columns, but line 1 has 2; fix the line"),
        ("a O\n\nb X O\n", {}, r"f.txt:3: 3 columns, but line 1 has 2"),
        ("a O\n", {"word_column": 2}, r"f.txt:1: there is no column 2, only 2; set data.word_colu"),
        ("a\tO\nb\t\n", {"separator": "tab"}, r"f.txt:2: the tag is empty; give the word one"),
        ("", {"separator": ","}, r"data.separator is ','; give 'tab', or ''"),
    ],
)
def test_errors(text, options, message):
    with pytest.raises(UserError, match=message):
        examples_of(text, **options)


@pytest.mark.parametrize(
    ("text", "options", "tags", "expected"),
    [
        (
            CONLL,
            {},
            [["B-ORG", "O"], ["B-PER"]],
            "-DOCSTART- -X- O O O\n\nEU NNP I-NP I-ORG B-ORG\nrejects VBZ I-VP O O\n\n"
            "-DOCSTART- -X- O O O\nPeter NNP I-NP I-PER B-PER\n",
        ),
        (
            "# of Bonn\r\nBonn\tO \r\n\r\n\r\nis\tO\r\n\r\n\r\n# end",
            {"comments": "# "},
            [["B-LOC"], ["O"]],
            "# of Bonn\r\nBonn\tO\tB-LOC\r\n\r\n\r\nis\tO\tO\r\n\r\n\r\n# end",
        ),
        ("EU\nrejects", {}, [["B-ORG", "O"]], "EU\tB-ORG\nrejects\tO"),
        ("New York\nBonn \n", {"separator": "tab"}, [["X", "O"]], "New York\tX\nBonn \tO\n"),
        (
            "1\tNew York\r\n2\t\r\n",
            {"separator": "tab", "tag_column": 5},
            [["O", "O"]],
            "1\tNew York\tO\r\n2\t\tO\r\n",
        ),
    ],
)
def test_lines_with_one_more_column(text, options, tags, expected):
    assert with_tags(text, *tags, **options) == expected


LINES = st.sampled_from(
    ["a O", "b\tB-X", " c  I-X ", "", " ", "-DOCSTART- O", "-DOCSTART-", "# x y z", "\u200b O"]
)


@hypothesis.given(st.lists(LINES), st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_every_line_is_kept_and_every_word_gets_a_tag(lines, end, ends_open):
    text = end.join(["a O", *lines]) + ("" if ends_open else end)
    examples = examples_of(text, comments="#")
    assert "".join(each.input.lines.text for each in examples) == text
    tagged = with_tags(text, *(["T"] * len(each.input.words) for each in examples), comments="#")
    for before, after in zip(text.split(end), tagged.split(end), strict=True):
        if not before.strip() or before.startswith("#"):
            assert after == before
        else:
            tag = "O" if before.startswith("-DOCSTART-") else "T"
            assert after.split() == [*before.split(), tag]


def test_sentences_are_read_one_at_a_time(tmp_path):
    path = tmp_path / "words.txt.gz"
    path.write_bytes(gzip.compress(b"a O\n\nb O\n\nc\n"))
    with open_lines(path) as lines:
        sentences = read_sentences(lines, with_last_lines=False)
        assert [next(sentences).input.words for _ in range(2)] == [("a",), ("b",)]
        with pytest.raises(UserError, match=r"words.txt.gz:5: 1 columns, but line 1 has 2"):
            next(sentences)


def test_sentences_as_columns():
    assert as_columns(["New York", "is", ""], ["B-LOC", "O", "O"], ["B-PER", "O", "O"]) == (
        "New_York\tB-LOC\tB-PER\nis\tO\tO\n_\tO\tO\n\n"
    )
