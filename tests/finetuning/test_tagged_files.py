"""Predicted tags beside the lines that they are for."""

import pytest

from bert_jax.data.readers.tagged import TaggedOptions, read_tagged
from bert_jax.tasks.base.splits import EvalSet
from bert_jax.tasks.tagging.files import tagged_file

IOB1 = "-DOCSTART- -X- O\r\n\r\nEU NNP I-ORG\r\nin IN O\r\n\r\nPeter NNP I-PER\r\nJan NNP B-PER\r\n"
PREDICTED = [["I-ORG", "O"], ["I-PER", "B-PER"]]


@pytest.fixture
def part_of(tmp_path):
    def make(text, name="dev.txt"):
        path = tmp_path / name
        path.write_bytes(text.encode())
        return EvalSet("validation", str(path), list(read_tagged(path)))

    return make


def test_the_file_with_a_further_column(part_of):
    assert tagged_file(part_of(IOB1), PREDICTED, TaggedOptions()) == (
        "-DOCSTART- -X- O O\r\n\r\nEU NNP I-ORG I-ORG\r\nin IN O O\r\n\r\n"
        "Peter NNP I-PER I-PER\r\nJan NNP B-PER B-PER\r\n"
    )


def test_a_part_of_the_file(part_of):
    whole = part_of(IOB1)
    part = EvalSet("validation", whole.source, whole.examples[1:])
    found = tagged_file(part, PREDICTED[1:], TaggedOptions())
    assert found == "\r\nPeter NNP I-PER I-PER\r\nJan NNP B-PER B-PER\r\n"


def test_a_file_without_tags(part_of):
    part = part_of("EU\nin\n\nPeter\nJan\n")
    assert tagged_file(part, PREDICTED, TaggedOptions()) == (
        "EU\tI-ORG\nin\tO\n\nPeter\tI-PER\nJan\tB-PER\n"
    )


def test_parts_of_speech_are_written_as_they_are(part_of):
    part = part_of("EU NNP\nin IN\n")
    assert tagged_file(part, [["IN", "NNP"]], TaggedOptions()) == "EU NNP IN\nin IN NNP\n"


def test_sentences_of_json_lines_become_columns(part_of):
    part = part_of('{"words": ["EU", "in"], "tags": ["B-ORG", "O"]}\n', "dev.jsonl")
    assert tagged_file(part, [["O", "O"]], TaggedOptions()) == "EU\tB-ORG\tO\nin\tO\tO\n\n"


def test_sentences_of_several_files_become_columns(part_of):
    first, second = part_of(IOB1), part_of("a O\n", "other.txt")
    part = EvalSet("validation", first.source, [first.examples[1], *second.examples])
    assert tagged_file(part, [["I-PER", "O"], ["O"]], TaggedOptions()) == (
        "Peter\tI-PER\tI-PER\nJan\tB-PER\tO\n\na\tO\tO\n\n"
    )
