"""`text:` files in their three layouts, and `jsonl:` records."""

import pytest

from bert_jax.data.pretraining.sources import BLOCK_CHARACTERS, Block, SourceSpec, open_source
from bert_jax.errors import UserError


def blocks(path, layout="auto"):
    return list(open_source(SourceSpec(f"text:{path}", format=layout)).blocks())


def records(path, **options):
    return list(open_source(SourceSpec(f"jsonl:{path}", **options)).blocks())


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


def test_blank_lines_part_documents(tmp_path):
    (tmp_path / "a.txt").write_text("\nOne.\nTwo.\n\n \nThree.\n")
    (tmp_path / "b.txt").write_text("Four.\n")
    expected = [Block(True, "One.\nTwo."), Block(True, "Three."), Block(True, "Four.")]
    assert blocks(tmp_path) == blocks(tmp_path, "bert") == expected


def test_each_line_is_a_document(tmp_path):
    (tmp_path / "a.txt").write_text("One. Two.\n\nThree.\n")
    assert blocks(tmp_path, "lines") == [Block(True, "One. Two."), Block(True, "Three.")]


def test_wikiextractor_is_detected_titles_and_stubs_left_out(tmp_path):
    (tmp_path / "wiki_00").write_text("\n" + WIKI)
    expected = [Block(True, "Cats sit. Dogs run.\nCats & dogs"), Block(True, "Birds fly.")]
    assert blocks(tmp_path) == blocks(tmp_path, "wikiextractor") == expected


def test_a_document_that_is_not_closed_ends_at_the_next_one(tmp_path):
    (tmp_path / "wiki_00").write_text("<doc id='1'>\nOne.\n<doc id='2'>\nTwo.\n")
    assert blocks(tmp_path) == [Block(True, "One."), Block(True, "Two.")]


def test_text_outside_of_documents_is_refused(tmp_path):
    path = tmp_path / "wiki_00"
    path.write_text(WIKI + "left over\n")
    with pytest.raises(UserError, match=f"^{path}:16: text outside of <doc"):
        blocks(path)
    assert len(blocks(path, "bert")) == 5


def test_a_file_without_blank_lines_comes_in_bounded_blocks(tmp_path):
    line = "A sentence of some words that stands on a line.\n"
    (tmp_path / "a.txt").write_text(line * 20_000)
    found = blocks(tmp_path)
    assert [block.starts_document for block in found] == [True, False, False, False]
    assert max(len(block.text) for block in found) <= BLOCK_CHARACTERS
    assert "\n".join(block.text for block in found) + "\n" == line * 20_000


def test_an_empty_file_among_others_is_no_document(tmp_path):
    (tmp_path / "a.txt").write_text("")
    (tmp_path / "b.txt").write_text("One.")
    assert blocks(tmp_path) == [Block(True, "One.")]


def test_a_document_per_record_in_the_named_field(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(
        '{"text": "One.\\nTwo.", "body": "x"}\n\n{"text": " "}\n{"text": "Thr\\u00e9e"}'
    )
    assert records(path) == [Block(True, "One.\nTwo."), Block(True, "Thrée")]
    path.write_text('{"body": "Roses are red,\\nviolets are blue.\\n\\nThe end."}\n')
    assert records(path, field="body", paragraphs="blank") == [
        Block(True, "Roses are red, violets are blue.\nThe end.")
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"text": "One.}', "not valid JSON: Unterminated string starting at, column 10"),
        ("[" * 100_000, "not valid JSON"),
        ('["One."]', "not a JSON object but list"),
        ('{"title": "x", "body": "y"}', "no field 'text'; its fields are 'title', 'body'"),
        ("{}", "no field 'text'; its fields are none"),
        ('{"text": null}', "'text' is not a string but NoneType"),
        ('{"text": ["One."]}', "'text' is not a string but list"),
        ('{"text": "a\\ud83d"}', "field 'text' has half a surrogate pair at character 2"),
    ],
)
def test_bad_records_are_named_by_file_and_line(tmp_path, line, message):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "One."}\n' + line + "\n")
    with pytest.raises(UserError) as error:
        records(path)
    assert str(error.value).startswith(f"{path}:2: {message}")


def test_half_a_surrogate_pair_can_be_replaced(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a\\ud83d b"}\n')
    assert records(path, errors="replace") == [Block(True, "a? b")]


def test_a_long_text_comes_in_blocks_of_one_document(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "' + "A line of a book.\\n" * 40_000 + '"}')
    assert [block.starts_document for block in records(path)] == [True, False, False]
