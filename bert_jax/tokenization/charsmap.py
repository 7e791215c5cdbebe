"""SentencePiece's table of normalisation (`precompiled_charsmap`), checked before it is used.

Both libraries follow its numbers wherever they lead: `tokenizers` first reserves as much memory as
the table says, which ends the process where that is limited, and panics at the first character that
leads out of it; `sentencepiece` reads beyond it.

The table is the size of a trie in bytes, uint32; the trie, a double array of uint32 in blocks of
256 (darts-clone); and texts in UTF-8, each ended by a zero byte. A node of the trie has its byte in
bits 0 to 7, in bit 8 whether a key ends there, and in the others the way to its block: one entry
for each byte that may follow, and at 0 the place of the text that replaces the key.
"""

from pathlib import Path

import numpy as np

from bert_jax.errors import UserError

LONGEST_KEY = 64
"""The limit in bytes; NFKC has 12. In a trie with a cycle each letter would lead to the text's end.
"""

_BLOCK = 256
_PLACE = 1 << 31  # marks the place of a text


def check_charsmap(origin: Path | str, table: bytes) -> None:
    """Raises UserError, which names `origin`, if a text could lead a reader out of the table."""
    if not _is_intact(table):
        raise UserError(
            f"{origin}: the table of normalisation (precompiled_charsmap) is damaged; copy the "
            "file again"
        )


def _is_intact(table: bytes) -> bool:
    size = int.from_bytes(table[:4], "little")
    trie, texts = table[4 : 4 + size], table[4 + size :]
    if len(trie) < size or not size or size % (4 * _BLOCK) or not texts.endswith(b"\0"):
        return False
    try:
        texts.decode()
    except UnicodeDecodeError:
        return False
    entries, numbers = np.frombuffer(trie, "<u4").astype(np.int64), np.arange(size // 4)
    labels = entries & (_PLACE | 0xFF)
    blocks = numbers ^ (entries >> 10 << ((entries & 1 << 9) >> 6))
    begins = np.frombuffer(b"\0" + texts[:-1], np.uint8) == 0  # whether a text does
    nodes = np.zeros(1, np.int64)  # the root, then those of each depth
    for _ in range(LONGEST_KEY + 2):
        if not nodes.size:
            return True
        if (blocks[nodes] >= len(entries)).any():
            return False
        places = entries[blocks[nodes[entries[nodes] >> 8 & 1 == 1]]] - _PLACE
        if (places < 0).any() or (places >= len(begins)).any() or not begins[places].all():
            return False
        is_block = np.zeros(len(entries), bool)
        is_block[blocks[nodes]] = True
        # A node of the next depth is in a block of these, at its byte.
        nodes = np.flatnonzero((labels > 0) & (labels < _BLOCK) & is_block[numbers ^ labels & 0xFF])
    return False
