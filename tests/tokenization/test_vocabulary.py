import pytest

from bert_jax.errors import UserError
from bert_jax.tokenization.cleaning import looks_lowercased
from bert_jax.tokenization.wordpiece import read_vocabulary, write_vocabulary


@pytest.mark.parametrize(
    "content",
    [
        "[PAD]\nthe\n##é\n",
        "[PAD]\nthe\n##é",
        "[PAD]\r\nthe\r\n##é\r\n",
        "\ufeff[PAD]\nthe\n##é\n\n",
    ],
    ids=["LF", "no last line end", "CRLF", "byte order mark and blank last line"],
)
def test_reads_every_kind_of_text_file(tmp_path, content):
    path = tmp_path / "vocab.txt"
    path.write_bytes(content.encode())

    assert read_vocabulary(path) == ["[PAD]", "the", "##é"]


def test_pieces_that_other_programs_take_for_line_ends_survive(tmp_path):
    pieces = ["a", "\u2028", "##\u2028", "\x85", "b"]

    write_vocabulary(tmp_path / "vocab.txt", pieces)

    assert read_vocabulary(tmp_path / "vocab.txt") == pieces


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "vocab.txt: the vocabulary is empty"),
        (b"\n\r\n\n", "vocab.txt: the vocabulary is empty"),
        (b"[PAD]\nthe\ncaf\xe9\n", "vocab.txt:3: byte 0xe9 is not UTF-8"),
    ],
)
def test_bad_files_are_explained(tmp_path, content, message):
    path = tmp_path / "vocab.txt"
    path.write_bytes(content)

    with pytest.raises(UserError) as error:
        read_vocabulary(path)

    assert str(error.value).startswith(str(tmp_path / message))


def test_looks_lowercased():
    assert looks_lowercased(["[CLS]", "<S>", "the", "##é", "中"])
    assert not looks_lowercased(["[CLS]", "the", "##É"])
    assert not looks_lowercased(["[CLS]", "A"])
