"""`jsonl:` records."""

import pytest

from bert_jax.data.pretraining.sources import Block, SourceSpec, open_source
from bert_jax.errors import UserError


def blocks(path, **options):
    return list(open_source(SourceSpec(f"jsonl:{path}", **options)).blocks())


def test_a_document_per_record_in_the_named_field(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(
        '{"text": "One.\\nTwo.", "body": "x"}\n\n{"text": " "}\n{"text": "Thr\\u00e9e"}'
    )
    assert blocks(path) == [Block(True, "One.\nTwo."), Block(True, "Thrée")]
    path.write_text('{"body": "Roses are red,\\nviolets are blue.\\n\\nThe end."}\n')
    assert blocks(path, field="body", paragraphs="blank") == [
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
        blocks(path)
    assert str(error.value).startswith(f"{path}:2: {message}")


def test_half_a_surrogate_pair_can_be_replaced(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a\\ud83d b"}\n')
    assert blocks(path, errors="replace") == [Block(True, "a? b")]


def test_a_long_text_comes_in_blocks_of_one_document(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "' + "A line of a book.\\n" * 40_000 + '"}')
    assert [block.starts_document for block in blocks(path)] == [True, False, False]
