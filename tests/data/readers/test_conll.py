"""Columns: what is read, what is refused, and what comes back line by line."""

import gzip
import io

import hypothesis
import hypothesis.strategies as st
import pytest

from bert_jax.data.examples import Example
from bert_jax.data.readers.conll import (
    ColumnOptions,
    as_columns,
    read_blocks,
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


def lines_of(text: str) -> Lines:
    return Lines("f.txt", io.BytesIO(text.encode()), None)


def blocks_of(text: str, **options) -> list[Example]:
    return list(read_blocks(lines_of(text), ColumnOptions(**options)))


def sentences_of(text: str, **options):
    """Words and tags of each sentence."""
    found = read_sentences(lines_of(text), ColumnOptions(**options))
    return [(one.input.words, one.label) for one in found]


def test_words_tags_numbers_and_places():
    first, second = read_sentences(lines_of(CONLL))
    assert (first.input.words, first.label) == (("EU", "rejects"), ("I-ORG", "O"))
    assert (first.id, first.location) == ("0", "f.txt:3")
    assert (second.input.words, second.label) == (("Peter",), ("I-PER",))
    assert (second.id, second.location) == ("1", "f.txt:7")


@pytest.mark.parametrize(
    ("word_column", "tag_column", "words", "tags"),
    [
        (0, -1, ("EU", "rejects"), ("I-ORG", "O")),
        (0, 2, ("EU", "rejects"), ("I-NP", "I-VP")),
        (-3, 1, ("NNP", "VBZ"), None),  # the words stand there themselves
        (0, 4, ("EU", "rejects"), None),
        (0, -5, ("EU", "rejects"), None),
    ],
)
def test_columns_by_number(word_column, tag_column, words, tags):
    found = sentences_of(CONLL, word_column=word_column, tag_column=tag_column)
    assert found[0] == (words, tags)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\tO\r\nb\tB-X\r\n\r\nc\tO\r\n", [("a", "b"), ("c",)]),
        ("\ufeffa O\nb O", [("a", "b")]),
        ("a O\n \t\nb O\n\n\n\n\n", [("a",), ("b",)]),
        ("a O\n\ufeff", [("a",)]),  # so ends WNUT's validation file
        ("  a \t O  \nb    O\n", [("a", "b")]),
        ("10\u00a0000 O\n\u3000 O\n", [("10\u00a0000", "\u3000")]),  # no blanks of ours
        ("", []),
        ("\n\n", []),
    ],
)
def test_blanks_ends_and_marks(text, expected):
    assert [words for words, _ in sentences_of(text)] == expected


def test_a_file_without_tags():
    assert sentences_of("EU\nrejects\n\ncalls\n") == [(("EU", "rejects"), None), (("calls",), None)]


def test_comments_are_no_words_if_one_says_so():
    text = "#\thttp://news\t[2010]\n1\tBonn\tB-LOC\tO\n2\t#\tO\tO\n"
    options = {"word_column": 1, "tag_column": 2, "comments": "#"}
    assert sentences_of(text, **options) == [(("Bonn", "#"), ("B-LOC", "O"))]
    assert sentences_of("# O\n") == [(("#",), ("O",))]


def test_tabs_alone_may_stand_between_columns():
    text = "New York\tB-LOC\nis \tO\n"
    assert sentences_of(text, separator="tab") == [(("New York", "is"), ("B-LOC", "O"))]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("a O\nb\n", {}, r"f.txt:2: 1 columns, but line 1 has 2; fix the line"),
        ("a O\n\nb X O\n", {}, r"f.txt:3: 3 columns, but line 1 has 2"),
        ("a O\n", {"word_column": 2}, r"f.txt:1: there is no column 2, only 2; set data.word_colu"),
        ("a\tO\nb\t\n", {"separator": "tab"}, r"f.txt:2: the tag is empty; give the word one"),
    ],
)
def test_malformed_lines(text, options, message):
    with pytest.raises(UserError, match=message):
        sentences_of(text, **options)


def test_tags_that_are_needed():
    with pytest.raises(UserError, match=r"f.txt:2: there is no column -1 of tags beside the words"):
        list(read_sentences(lines_of("\nEU\n"), needs_tags=True))


def test_an_unknown_separator():
    with pytest.raises(UserError, match=r"data.separator is ','; give 'tab', or ''"):
        ColumnOptions(separator=",")


def test_the_lines_come_back_with_a_further_column():
    tags = [["B-ORG", "O"], ["B-PER"]]
    found = "".join(
        with_tag_column(block.input, block.label, row)
        for block, row in zip(blocks_of(CONLL), tags, strict=True)
    )
    assert (
        found
        == """\
-DOCSTART- -X- O O O

EU NNP I-NP I-ORG B-ORG
rejects VBZ I-VP O O

-DOCSTART- -X- O O O
Peter NNP I-NP I-PER B-PER
"""
    )


def test_ends_of_lines_and_comments_stay():
    text = "# of Bonn\r\nBonn\tO \r\n\r\n\r\nis\tO\r\n"
    first, second = blocks_of(text, comments="# ")
    assert (
        with_tag_column(first.input, first.label, ["B-LOC"])
        == "# of Bonn\r\nBonn\tO\tB-LOC\r\n\r\n"
    )
    assert with_tag_column(second.input, second.label, ["O"]) == "\r\nis\tO\tO\r\n"


def test_a_single_column_gets_a_second_one():
    (block,) = blocks_of("EU\nrejects")
    assert with_tag_column(block.input, block.label, ["B-ORG", "O"]) == "EU\tB-ORG\nrejects\tO"


def test_blanks_in_columns_between_tabs_stay():
    (block,) = blocks_of("New York\nBonn \n", separator="tab")
    assert (
        with_tag_column(block.input, block.label, ["B-LOC", "B-LOC"])
        == "New York\tB-LOC\nBonn \tB-LOC\n"
    )
    (block,) = blocks_of("1\tNew York\r\n2\t\r\n", separator="tab", word_column=0, tag_column=5)
    assert with_tag_column(block.input, block.label, ["O", "O"]) == "1\tNew York\tO\r\n2\t\tO\r\n"


LINES = st.sampled_from(
    ["a O", "b\tB-X", " c  I-X ", "", " ", "-DOCSTART- O", "-DOCSTART-", "# x y z", "\u200b O"]
)


@hypothesis.given(st.lists(LINES), st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_all_lines_are_in_a_block_and_every_word_in_one_row(lines, end, ends_open):
    text = end.join(lines) + ("" if ends_open else end)
    blocks = blocks_of(text, comments="#")
    assert "".join(block.input.lines.text for block in blocks) == text
    tagged = "".join(
        with_tag_column(block.input, block.label, ["T"] * len(block.input.lines.rows))
        for block in blocks
    )
    assert len(tagged.splitlines()) == len(text.splitlines())
    for before, after in zip(text.split(end), tagged.split(end), strict=True):
        is_row = before.strip() and not before.startswith("#")
        if is_row and before.startswith("-DOCSTART-"):
            assert after.split() == [*before.split(), "O"]
        elif is_row:
            assert after.split() == [*before.split(), "T"]
        else:
            assert after == before


def test_blocks_are_read_one_at_a_time(tmp_path):
    """A broken line behind the first sentences does not keep them back."""
    path = tmp_path / "words.txt.gz"
    path.write_bytes(gzip.compress(b"a O\n\nb O\n\nc\n"))
    with open_lines(path) as lines:
        blocks = read_blocks(lines)
        assert next(blocks).input.words == ("a",)
        assert next(blocks).input.words == ("b",)
        with pytest.raises(UserError, match=r"words.txt.gz:5: 1 columns, but line 1 has 2"):
            next(blocks)


def test_sentences_as_columns():
    assert as_columns(["New York", "is", ""], ["B-LOC", "O", "O"], ["B-PER", "O", "O"]) == (
        "New_York\tB-LOC\tB-PER\nis\tO\tO\n_\tO\tO\n\n"
    )
