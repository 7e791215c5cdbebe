"""`vocab.txt`: one piece a line, the line number (from 0) is the id."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from bert_jax.errors import UserError


def read_vocabulary(path: Path) -> list[str]:
    """Reads and checks a vocabulary file.

    UTF-8, with or without a byte order mark; lines end in LF or CRLF. Only LF parts lines:
    `bert-base-chinese` holds U+2028, which `str.splitlines` would take for a line end.

    Raises:
        UserError: the file is empty, has bytes that are not UTF-8, or lists a piece twice.
    """
    data = path.read_bytes()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UserError(
            f"{path}:{line}: byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8"
        ) from None
    pieces = [line.removesuffix("\r") for line in text.split("\n")]
    while pieces and not pieces[-1]:
        pieces.pop()
    if not pieces:
        raise UserError(f"{path}: the vocabulary is empty; give a file with one piece a line")
    first_lines: dict[str, int] = {}
    for line, piece in enumerate(pieces, start=1):
        if piece in first_lines:
            raise UserError(
                f"{path}:{line}: {piece!r} is already on line {first_lines[piece]}; a piece can "
                "have only one id: remove or rename one of them"
            )
        first_lines[piece] = line
    return pieces


def write_vocabulary(path: Path, pieces: Sequence[str]) -> None:
    """Writes pieces as UTF-8 lines ending in LF, on every platform."""
    path.write_bytes("".join(f"{piece}\n" for piece in pieces).encode("utf-8"))


def looks_lowercased(pieces: Iterable[str]) -> bool:
    """Whether a vocabulary was made from lower-cased text: no piece has an upper-case letter.

    Markers in brackets ("[CLS]", and "<S>" of bert-base-chinese) do not count. The result agrees
    with `validate_case_matches_checkpoint` of google-research/bert (tokenization.py).
    """
    return not any(
        piece != piece.lower() and piece[:1] + piece[-1:] not in ("[]", "<>") for piece in pieces
    )
