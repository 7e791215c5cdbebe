"""Names and numbers in aligned columns."""

import unicodedata
from collections.abc import Sequence

# Names are cut to this many columns.
NAME_WIDTH = 24


def shorten(name: str, width: int = NAME_WIDTH) -> str:
    """A name in one line of at most `width` columns; characters in the middle are dropped."""
    name = " ".join("".join(c if c.isprintable() else " " for c in name).split())
    if _columns(name) <= width:
        return name
    front, back = "", ""
    # The back gets half of the columns, rounded down; the front gets the rest.
    while _columns(name[-len(back) - 1 :]) <= (width - 1) // 2:
        back = name[-len(back) - 1 :]
    while _columns(name[: len(front) + 1]) <= width - 1 - _columns(back):
        front = name[: len(front) + 1]
    return f"{front}…{back}"


def aligned(rows: Sequence[Sequence[str]], *, left: int = 1) -> list[str]:
    """Lines with the first `left` cells of each row aligned left and all others right.

    Args:
        rows: rows with equal numbers of cells.
        left: number of columns that contain names.
    """
    widths = [max(map(_columns, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        line = []
        for index, (cell, width) in enumerate(zip(row, widths, strict=True)):
            blank = " " * (width - _columns(cell))
            line.append(cell + blank if index < left else blank + cell)
        lines.append("  ".join(line).rstrip())
    return lines


def _columns(text: str) -> int:
    """Columns on a terminal: Chinese, Japanese and Korean characters take two, accents none."""
    marks = sum(unicodedata.category(c) in ("Mn", "Me") for c in text)
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - marks
