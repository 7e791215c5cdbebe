"""The files of BPE: pieces with their ids, and merges, from two files or a `tokenizer.json`."""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from bert_jax.errors import UserError
from bert_jax.files import VOCABULARY_BYTES, read_json_object, read_limited
from bert_jax.process import say
from bert_jax.tokenization.definition import (
    READ_REMEDY,
    checked_model,
    checked_pieces,
    decoded_lines,
)
from bert_jax.tokenization.source import BPE_FILE, TokenizerSource

MERGES_FILE = "merges.txt"

Merge = tuple[str, str]
"""Two pieces that are joined."""

# Pieces that no merge makes are special tokens and a few that a vocabulary has for its size.
_MOST_UNMADE = 0.1
_FEW_UNMADE = 0.001

# A piece for a byte, of a model with `byte_fallback`.
_BYTE = re.compile("<0x[0-9A-F]{2}>")


def read_bpe(source: TokenizerSource, suffix: str = "") -> tuple[dict[str, int], list[Merge]]:
    """The id of each piece, and the merges in their order.

    Args:
        source: the files.
        suffix: how pieces end that end a word; no merge makes a letter with it.

    Raises:
        UserError: a file is missing or damaged, or the merges do not fit the pieces.
    """
    path, definition = source.path(BPE_FILE), source.definition
    if definition is None:
        content = read_json_object(path, remedy="give an object of pieces and their ids")
        pieces = checked_pieces(path, content)
        merges_path = path.with_name(MERGES_FILE)
        remedy = f"give the {MERGES_FILE} that was made with the {BPE_FILE} beside it"
        data = read_limited(merges_path, VOCABULARY_BYTES, remedy=remedy)
        numbered = (
            (f":{number}: the merge", line.split(" "))
            for number, line in enumerate(decoded_lines(merges_path, data), start=1)
            if line and not (number == 1 and line.startswith("#version"))
        )
        return pieces, _checked_merges(merges_path, numbered, pieces, suffix, remedy)
    model = checked_model(path, definition, "BPE")
    pieces = checked_pieces(path, model.get("vocab"))
    listed = model.get("merges")
    if not isinstance(listed, list):
        raise UserError(f"{path}: the BPE model has no list of merges; {READ_REMEDY}")
    numbered = (
        (f": merge {number}", merge.split(" ") if isinstance(merge, str) else merge)
        for number, merge in enumerate(listed)
    )
    return pieces, _checked_merges(path, numbered, pieces, suffix, READ_REMEDY)


def write_bpe(directory: Path, model: Mapping[str, Any]) -> None:
    """Writes `vocab.json` and `merges.txt` of the model of a `tokenizer.json`."""
    ordered = dict(sorted(model["vocab"].items(), key=lambda item: item[1]))
    lines = ["#version: 0.2", *(" ".join(merge) for merge in model["merges"])]
    for name, content in {
        BPE_FILE: json.dumps(ordered, ensure_ascii=False),
        MERGES_FILE: "".join(f"{line}\n" for line in lines),
    }.items():
        (directory / name).write_bytes(content.encode())


def _checked_merges(
    path: Path,
    numbered: Iterable[tuple[str, Any]],
    vocabulary: Mapping[str, int],
    suffix: str,
    remedy: str,
) -> list[Merge]:
    """The merges of BPE, with a line on stderr if they may be cut off.

    `numbered` is how a message names each merge after the path, and its two pieces.

    Raises:
        UserError: a merge does not fit the vocabulary, or many are missing.
    """
    merges = []
    for name, merge in numbered:
        is_pair = isinstance(merge, list) and len(merge) == 2
        if not is_pair or not all(isinstance(piece, str) for piece in merge):
            raise UserError(
                f"{path}{name} is {merge!r:.80}, not two pieces with a space between; {remedy}"
            )
        for piece in (*merge, "".join(merge)):
            if piece not in vocabulary:
                raise UserError(
                    f"{path}{name} ({' '.join(merge):.80}) needs {piece!r:.80}, which is not in "
                    f"the vocabulary; {remedy}"
                )
        merges.append((merge[0], merge[1]))
    made = {"".join(merge) for merge in merges}
    longer = [
        piece
        for piece in vocabulary
        if len(piece.removesuffix(suffix)) > 1 and not _BYTE.fullmatch(piece)
    ]
    unmade = [piece for piece in longer if piece not in made]
    words = [piece for piece in unmade if piece[0] not in "<["]
    missing = (
        f"{path}: no merge makes {len(unmade)} of the {len(vocabulary)} pieces, such as "
        f"{(words or unmade or [''])[-1]!r:.80}"
    )
    if len(unmade) > _MOST_UNMADE * len(vocabulary) or (words and not merges):
        raise UserError(
            f"{missing}; the limit is {_MOST_UNMADE:.0%}: the file is cut off, {remedy}"
        )
    if len(words) > _FEW_UNMADE * len(vocabulary):
        say(f"{missing}; if the file was cut off, copy it again")
    return merges
