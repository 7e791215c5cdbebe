"""Sources: specs, blocks and files by pattern."""

from pathlib import Path

import pytest
from ml_collections import ConfigDict

from bert_jax.data.pretraining.sources import (
    Block,
    SourceSpec,
    blocks_of,
    document_blocks,
    open_source,
    source_specs,
)
from bert_jax.errors import UserError


def test_one_string_is_one_source_with_the_defaults():
    assert source_specs("text:a.txt", {"errors": "replace"}) == (
        SourceSpec("text:a.txt", errors="replace"),
    )


def test_a_mixture_of_mappings_strings_and_config_dicts():
    entries = [
        "text:a",
        {"source": "jsonl:b", "field": "body"},
        ConfigDict({"source": "text:c", "weight": 3}),
    ]
    specs = source_specs(entries, {"field": "content"})
    assert specs == (
        SourceSpec("text:a", field="content"),
        SourceSpec("jsonl:b", field="body"),
        SourceSpec("text:c", field="content", weight=3),
    )


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("", "there is no source of text; set data.source"),
        ([], "there is no source of text; set data.source"),
        (None, "there is no source of text; set data.source"),
        ([{"weight": 2.0}], "names no source"),
        ([{"source": "text:a", "wieght": 2.0}], "'wieght', the nearest known is 'weight'"),
        ([{"source": "text:a", "weight": 0}], "'text:a': weight 0 is not a number above 0"),
        ([{"source": "text:a", "weight": "2"}], "'text:a': weight '2' is not a number above 0"),
        ([{"source": "text:a", "weight": float("nan")}], "weight nan"),
        ([{"source": "text:a", "format": "word"}], "format 'word' is unknown; data.format must be"),
        ([{"source": "text:a", "errors": "ignore"}], "must be strict or replace"),
        ([{"source": "jsonl:a", "field": ""}], "source 'jsonl:a': '' names no field; set data"),
    ],
)  # fmt: skip
def test_wrong_specs_say_what_is_wrong(source, message):
    with pytest.raises(UserError) as error:
        source_specs(source)
    assert message in str(error.value)


@pytest.mark.parametrize("source", ["books.txt", "web:http://x", "text"])
def test_an_unknown_kind_lists_the_known_ones(source):
    with pytest.raises(UserError, match=r"\(text:, jsonl:, tfds:, python-docs:\)"):
        open_source(SourceSpec(source))


def test_blocks_end_before_the_line_that_does_not_fit():
    long = "a line that is longer than a block"
    lines = ["abcd", "  ", " efgh ", "i", long, None, None, "next", " "]
    assert list(blocks_of(lines, limit=10)) == [
        Block(True, "abcd\nefgh"),
        Block(False, "i"),
        Block(False, long),
        Block(True, "next"),
    ]


def test_paragraphs_are_lines_or_joined_up_to_a_blank_line():
    text = "When in the course\r\nof human events\n\n \nit becomes\n"
    assert list(document_blocks(text, "lines")) == [
        Block(True, "When in the course\nof human events\nit becomes")
    ]
    assert list(document_blocks(text, "blank")) == [
        Block(True, "When in the course of human events\nit becomes")
    ]
    assert list(document_blocks(" \n\n", "blank")) == []


def texts(pattern: object, errors: str = "strict") -> list[str]:
    source = open_source(SourceSpec(f"text:{pattern}", format="lines", errors=errors))
    return [block.text for block in source.blocks()]


def test_a_directory_is_read_to_the_bottom_in_sorted_order_without_hidden_files(tmp_path):
    for name in ("b/two.txt", "a/AB/wiki_01", "a/AA/wiki_00", "c.txt", ".hidden", "a/.git/x"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    assert texts(tmp_path) == ["a/AA/wiki_00", "a/AB/wiki_01", "b/two.txt", "c.txt"]
    assert texts(tmp_path / "*" / "*" / "wiki*") == ["a/AA/wiki_00", "a/AB/wiki_01"]
    assert texts(tmp_path / "**" / "*.txt") == ["b/two.txt", "c.txt"]
    assert texts(tmp_path / "[bc]*") == ["b/two.txt", "c.txt"]


def test_a_name_with_brackets_that_exists_is_not_a_pattern(tmp_path):
    (tmp_path / "books[1].txt").write_text("one")
    assert texts(tmp_path / "books[1].txt") == ["one"]


def test_undecodable_bytes_stop_with_file_line_and_byte_or_are_replaced(tmp_path):
    path = tmp_path / "latin.txt"
    path.write_bytes(b"fine\ncaf\xe9 au lait\n")
    with pytest.raises(UserError) as error:
        texts(path)
    assert str(error.value).startswith(f"{path}:2: byte 4 of the line (0xe9) is not UTF-8")
    assert "set data.errors=replace" in str(error.value)
    assert texts(path, errors="replace") == ["fine", "caf\ufffd au lait"]


def test_what_is_not_there_is_named(tmp_path):
    (tmp_path / "empty").mkdir()
    for pattern, message in [
        (tmp_path / "no.txt", "no.txt does not exist"),
        (tmp_path / "*.txt", r"\*.txt matches no file"),
        (tmp_path / "empty", "there is no file in"),
        ("", "names no file, directory or pattern"),
    ]:
        with pytest.raises(UserError, match=message):
            texts(pattern)


def test_identity_changes_with_the_file_and_position_ends_at_size(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("one\ntwo\n")
    (tmp_path / "b.txt").write_text("three")
    source = open_source(SourceSpec(f"text:{tmp_path}"))
    assert source.size == 13
    assert list(source.blocks())
    assert source.position == 13
    path.write_text("one\ntwo!\n")
    assert open_source(SourceSpec(f"text:{tmp_path}")).identity() != source.identity()


def test_a_home_directory_is_found(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    Path(tmp_path, "mine.txt").write_text("home")
    assert texts("~/mine.txt") == ["home"]
