"""Names and numbers in aligned columns."""

import unicodedata
from collections.abc import Sequence

# Names are cut to so many columns.
NAME_WIDTH = 24


def shorten(name: str, width: int = NAME_WIDTH) -> str:
    """A name in at most `width` columns and one line; its middle goes where it is too long."""
    name = " ".join("".join(c if c.isprintable() else " " for c in name).split())
    if _columns(name) <= width:
        return name
    front, back = "", ""
    # The front gets what the back leaves: half of it, or a column more.
    while _columns(name[-len(back) - 1 :]) <= (width - 1) // 2:
        back = name[-len(back) - 1 :]
    while _columns(name[: len(front) + 1]) <= width - 1 - _columns(back):
        front = name[: len(front) + 1]
    return f"{front}…{back}"


def aligned(rows: Sequence[Sequence[str]], *, left: int = 1) -> list[str]:
    """Lines with the first `left` cells of each row to the left and all others to the right.

    Args:
        rows: of as many cells each.
        left: how many columns hold names.
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
