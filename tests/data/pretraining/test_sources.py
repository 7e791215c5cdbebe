"""Sources: specs, blocks, files by pattern in their layouts, records and docstrings."""

import re

import pytest
from ml_collections import ConfigDict

from bert_jax.data.pretraining.sources import (
    BLOCK_CHARACTERS,
    Block,
    SourceSpec,
    blocks_of,
    document_blocks,
    open_source,
    source_specs,
)
from bert_jax.data.pretraining.sources.python_docs import PythonDocs, prose
from bert_jax.errors import OptionError, UserError


def blocks(location, kind="text", **options):
    return list(open_source(SourceSpec(f"{kind}:{location}", **options)).blocks())


def test_one_string_or_a_mixture_of_mappings_strings_and_config_dicts():
    assert source_specs("text:a.txt", {"errors": "replace"}) == (
        SourceSpec("text:a.txt", errors="replace"),
    )
    entries = [
        "text:a",
        {"source": "jsonl:b", "field": "body"},
        ConfigDict({"source": "text:c", "weight": 3}),
    ]
    assert source_specs(entries, {"field": "content"}) == (
        SourceSpec("text:a", field="content"),
        SourceSpec("jsonl:b", field="body"),
        SourceSpec("text:c", field="content", weight=3),
    )


@pytest.mark.parametrize(
    ("source", "message"),
    [
        *((empty, "there is no source of text; set data.source") for empty in ("", [], None)),
        ([{"weight": 2.0}], "names no source"),
        ([{"source": "text:a", "wieght": 2.0}], "'wieght', the nearest known is 'weight'"),
        ([{"source": "text:a", "weight": 0}], "'text:a': weight 0 is not a number above 0"),
        ([{"source": "text:a", "weight": "2"}], "'text:a': weight '2' is not a number above 0"),
        ([{"source": "text:a", "weight": float("nan")}], "weight nan"),
        ([{"source": "text:a", "format": "word"}], "format 'word' is unknown; data.format must be"),
        ([{"source": "text:a", "errors": "ignore"}], "must be strict or replace"),
        ([{"source": "jsonl:a", "field": ""}], "source 'jsonl:a': '' names no field; set data"),
        *(
            (unknown, "(text:, jsonl:, tfds:, python-docs:)")
            for unknown in ("books.txt", "web:http://x", "text")
        ),
        ("python-docs:json", "nothing may follow 'python-docs:'"),
    ],
)  # fmt: skip
def test_wrong_specs_say_what_is_wrong(source, message):
    with pytest.raises(OptionError) as error:
        open_source(*source_specs(source))
    assert message in str(error.value)


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
    for paragraphs, joined in (("lines", "\n"), ("blank", " ")):
        expected = f"When in the course{joined}of human events\nit becomes"
        assert list(document_blocks(text, paragraphs)) == [Block(True, expected)]
        assert list(document_blocks(" \n\n", paragraphs)) == []


def test_patterns_directories_and_names(tmp_path, monkeypatch):
    names = ("b/two.txt", "a/AB/wiki_01", "a/AA/wiki_00", "c.txt", ".hidden", "a/.git/x", "d[1].c")
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    wikis = ["a/AA/wiki_00", "a/AB/wiki_01"]
    for pattern, expected in {
        tmp_path: [*wikis, "b/two.txt", "c.txt", "d[1].c"],
        tmp_path / "*" / "*" / "wiki*": wikis,
        tmp_path / "**" / "*.txt": ["b/two.txt", "c.txt"],
        tmp_path / "[bc]*": ["b/two.txt", "c.txt"],
        tmp_path / "d[1].c": ["d[1].c"],  # a name that exists is not a pattern
        "~/c.txt": ["c.txt"],
    }.items():
        assert [block.text for block in blocks(pattern)] == expected


def test_what_is_not_there_is_named(tmp_path):
    (tmp_path / "empty").mkdir()
    for pattern, message in [
        (tmp_path / "no.txt", "no.txt does not exist"),
        (tmp_path / "*.txt", r"\*.txt matches no file"),
        (tmp_path / "empty", "there is no file in"),
        ("", "names no file, directory or pattern"),
    ]:
        with pytest.raises(UserError, match=message):
            blocks(pattern)


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


@pytest.mark.parametrize("options", [{}, {"format": "lines"}])
def test_what_is_not_prose_is_refused_before_it_is_read(tmp_path, options):
    for name in ("a.jsonl", "a.JSON.gz"):
        path = tmp_path / name
        path.touch()
        message = (
            f"{path} looks like JSON, not like prose; read JSON lines as jsonl:{path}, or set "
        )
        with pytest.raises(UserError, match=re.escape(f"{message}data.format=bert if it is plain")):
            open_source(SourceSpec(f"text:{path}", **options))


def test_a_table_is_text_where_its_lines_are_documents(tmp_path):
    for name in ("a.csv", "a.tsv.xz"):
        path = tmp_path / name
        path.write_text("one, two\nthree\n")
        message = (
            f"{path} looks like a table, not like prose; write JSON lines, or set data.format="
        )
        with pytest.raises(UserError, match=re.escape(f"{message}lines if it is plain text")):
            open_source(SourceSpec(f"text:{path}"))
    source = open_source(SourceSpec(f"text:{tmp_path}/a.csv", format="lines"))
    assert [block.text for block in source.blocks()] == ["one, two", "three"]


def test_lines_that_end_in_cr(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"One.\rTwo.\r\rThree.")
    source = open_source(SourceSpec(f"text:{tmp_path}/a.txt"))
    assert [block.text for block in source.blocks()] == ["One.\nTwo.", "Three."]


def test_an_array_of_documents(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('[{"text": "One."},\n {"text": "Two."}]\n')
    source = open_source(SourceSpec(f"jsonl:{path}"))
    assert [block.text for block in source.blocks()] == ["One.", "Two."]


def test_json_without_its_ending_is_refused(tmp_path):
    path = tmp_path / "wiki_00"  # as WikiExtractor writes it with --json
    for content in ('\n{"id": "12", "text": "Cats sit."}\n', "{\n", '[{"text": "a"}]', " [\n{"):
        path.write_text(content)
        with pytest.raises(UserError, match="wiki_00 looks like JSON, not like prose; read JSON"):
            blocks(path)
    for content in ("{ x } is a set", "[1] Cats", "{'a'}"):
        path.write_text(content)
        assert [block.text for block in blocks(path)] == [content]
    path.write_text('{"a": 1}')
    assert blocks(path, format="bert") == [Block(True, '{"a": 1}')]


WIKI = """\
<doc id="12" url="https://en.wikipedia.org/wiki?curid=12" title="Cats &amp; dogs">
Cats & dogs

Cats sit. Dogs run.

Cats & dogs

</doc>
<doc id="13" url="https://en.wikipedia.org/wiki?curid=13" title="A redirect">
A redirect

</doc>
<doc id="14" url="https://en.wikipedia.org/wiki?curid=14" title="Birds">
Birds fly.
</doc>
"""


@pytest.mark.parametrize(
    ("layouts", "text", "documents"),
    [
        (["auto", "bert"], "\nOne.\nTwo.\n\n \nThree.\n", ["One.\nTwo.", "Three."]),
        (["lines"], "One. Two.\n\nThree.\n", ["One. Two.", "Three."]),
        # Without titles and stubs.
        (["auto", "wikiextractor"], WIKI, ["Cats sit. Dogs run.\nCats & dogs", "Birds fly."]),
        (["auto"], "<doc id='1'>\nOne.\n<doc id='2'>\nTwo.\n", ["One.", "Two."]),
        (["auto"], "", []),
    ],
)
def test_documents_of_a_layout(tmp_path, layouts, text, documents):
    (tmp_path / "a.txt").write_text(text)
    (tmp_path / "b.txt").write_text("Four.")
    for layout in layouts:
        if layout == "wikiextractor":
            (tmp_path / "b.txt").write_text("<doc>\nFour.\n</doc>")
        expected = [Block(True, document) for document in [*documents, "Four."]]
        assert blocks(tmp_path, format=layout) == expected


def test_text_outside_of_documents_is_refused(tmp_path):
    path = tmp_path / "wiki_00"
    path.write_text(WIKI + "left over\n")
    with pytest.raises(UserError, match=f"^{path}:16: text outside of <doc"):
        blocks(path)
    assert len(blocks(path, format="bert")) == 5


def test_a_long_document_comes_in_bounded_blocks(tmp_path):
    line = "A sentence of some words in a line.\n"
    (tmp_path / "a.txt").write_text(line * 20_000)
    (tmp_path / "a.jsonl").write_text('{"text": "' + line.replace("\n", "\\n") * 20_000 + '"}')
    for kind, name in (("text", "a.txt"), ("jsonl", "a.jsonl")):
        parts = blocks(tmp_path / name, kind)
        assert [block.starts_document for block in parts] == [True, False, False]
        assert max(len(block.text) for block in parts) <= BLOCK_CHARACTERS
        assert "\n".join(block.text for block in parts) + "\n" == line * 20_000


def test_a_document_per_record_in_the_named_field(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(
        '{"text": "One.\\nTwo.", "body": "x"}\n\n{"text": " "}\n{"text": "Thr\\u00e9e"}'
    )
    assert blocks(path, "jsonl") == [Block(True, "One.\nTwo."), Block(True, "Thrée")]
    path.write_text('{"body": "Roses are red,\\nviolets are blue.\\n\\nThe end."}\n')
    assert blocks(path, "jsonl", field="body", paragraphs="blank") == [
        Block(True, "Roses are red, violets are blue.\nThe end.")
    ]


@pytest.mark.parametrize(
    ("kind", "line", "message"),
    [
        ("jsonl", '{"text": "One.}', "not valid JSON: Unterminated string starting at, column 10"),
        ("jsonl", "[" * 100_000, "not valid JSON"),
        ("jsonl", '["One."]', "not a JSON object but list"),
        ("jsonl", '{"a": "x", "b": "y"}', "no field 'text'; its fields are 'a', 'b'; set data.fie"),
        ("jsonl", "{}", "no field 'text'; its fields are none"),
        ("jsonl", '{"text": null}', "'text' is null; give it a value, or remove the row"),
        ("jsonl", '{"text": ["One."]}', "'text' is not a string but list"),
        ("jsonl", '{"text": "a\\ud83d"}', "field 'text' has half a surrogate pair at character 2"),
        ("text", "caf\udce9 au lait", "byte 4 of the line (0xe9) is not UTF-8"),
    ],
)
def test_bad_lines_are_named_by_file_and_line(tmp_path, kind, line, message):
    path = tmp_path / "a"
    first = '{"text": "One."}' if kind == "jsonl" else "One."
    path.write_text(f"{first}\n{line}\n", errors="surrogateescape")
    with pytest.raises(UserError) as error:
        blocks(path, kind)
    assert str(error.value).startswith(f"{path}:2: {message}")
    if "surrogate" in message or "UTF-8" in message:
        assert "set data.errors=replace" in str(error.value)
        last = blocks(path, kind, errors="replace", format="lines")[-1]
        assert last.text in ("a?", "caf\ufffd au lait")


MODULE = '''\
"""Counting things
that are wrapped over lines.

    >>> count("a a")
    2

x = [1, 2, 3]
"""

class Counter:
    """A counter of things.

    * It never forgets what it has counted.
    * It never
      counts a thing twice.
    """

    async def count(self):
        "Counts one more of the things."

def after():
    """Runs after the class above, in order."""
'''


def test_prose_is_joined_and_code_dropped():
    text = "Heading\n*******\n\nThe first words\nof a text:\n\n   x = f(y)[0]\n\n"
    text += '1. "One" of two points.\n'
    assert prose(text) == 'The first words of a text:\n"One" of two points.'


def test_docstrings_come_in_the_order_of_the_source(tmp_path):
    (tmp_path / "json").mkdir()
    (tmp_path / "test").mkdir()
    (tmp_path / "counting.py").write_text(MODULE)
    (tmp_path / "json" / "__init__.py").write_text("'It reads and writes the text.'")
    (tmp_path / "test" / "test_counting.py").write_text("'It is only a test of this.'")
    (tmp_path / "broken.py").write_text("def broken(:")
    documents = list(PythonDocs(SourceSpec("python-docs:"), library=tmp_path).blocks())
    assert [block.text for block in documents[-2:]] == [
        "Counting things that are wrapped over lines.\n"
        "A counter of things.\n"
        "It never forgets what it has counted.\n"
        "It never counts a thing twice.\n"
        "Counts one more of the things.\n"
        "Runs after the class above, in order.",
        "It reads and writes the text.",
    ]
    assert all(block.starts_document for block in documents)
    assert "test of this" not in " ".join(block.text for block in documents)


@pytest.mark.slow
def test_this_interpreter_has_enough_text():
    source = open_source(SourceSpec("python-docs:"))
    documents = list(source.blocks())
    assert sum(len(block.text.split()) for block in documents) > 200_000
    assert sum(block.starts_document for block in documents) > 300
    assert any("Assert statements are a convenient way" in block.text for block in documents)
    assert list(source.blocks()) == documents
    assert source.position == source.size
