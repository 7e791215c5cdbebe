"""SentencePiece's table of normalisation: a small one, and each way to lead out of it."""

import numpy as np
import pytest
from tokenizers import normalizers

from bert_jax.errors import UserError
from bert_jax.tokenization.charsmap import check_charsmap

# The block of the root is at 256; there "a", at 256 ^ 97, has its block at 128, where its text is.
ROOT, A, BLOCK = 0, 353, 128
KEY_ENDS, TEXT = 1 << 8, 1 << 31
TABLE = {ROOT: 256 << 10, A: 97 | KEY_ENDS | (A ^ BLOCK) << 10, BLOCK: TEXT}


def table_of(entries, texts=b"b\0", size=2048):
    trie = np.zeros(512, "<u4")
    trie[list(entries)] = list(entries.values())
    return size.to_bytes(4, "little") + trie.tobytes() + texts


def test_a_whole_table():
    check_charsmap("", table_of(TABLE))
    assert normalizers.Precompiled(table_of(TABLE)).normalize_str("cab") == "cbb"
    check_charsmap("", table_of(TABLE | {BLOCK: TEXT | 2}, b"x\0\xc3\xa4\0"))


@pytest.mark.parametrize(
    "table",
    [
        b"",
        table_of(TABLE)[:1000],
        table_of(TABLE, size=1 << 31),  # memory that a library reserves
        table_of(TABLE, size=1028),
        table_of(TABLE, b"b"),
        table_of(TABLE, b"\xff\0"),
        table_of(TABLE | {ROOT: 512 << 10}),
        table_of(TABLE | {A: 97 | KEY_ENDS | 1 << 20}),
        table_of(TABLE | {BLOCK: 0}),
        table_of(TABLE | {BLOCK: TEXT | 2}),
        table_of(TABLE | {BLOCK: TEXT | 1}, b"bc\0"),
        table_of(TABLE | {A: 97 | 97 << 10}),  # "a" leads to itself
    ],
)
def test_a_table_that_leads_a_reader_out_of_it(table):
    with pytest.raises(UserError, match=r"^x.model: the table .* is damaged; copy the file again$"):
        check_charsmap("x.model", table)
