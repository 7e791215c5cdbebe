"""Pictures as files, with fonts for names in any script."""

import functools
from collections.abc import Collection
from pathlib import Path
from typing import Any

from bert_jax.files.atomic import atomic_file
from bert_jax.files.reading import check_regular

# Style, weight and width of a font that names are drawn in.
_UPRIGHT = {("normal", weight, "normal") for weight in ("400", "normal")}
# Fonts of formulas, and one that has a box for every character.
_NO_TEXT = ("cm", "STIXSize", "STIXNonUnicode", "Last Resort")


def save_figure(path: Path, figure: Any, dpi: int = 120, *, names: Collection[str] = ()) -> None:
    """Writes a figure of matplotlib as a PNG file without blank margins; see `atomic_file`.

    Args:
        path: the file.
        figure: the figure.
        dpi: pixels per inch.
        names: texts in it that may be of any script: where the usual font lacks a character,
            another installed font that has it is used.
    """
    from matplotlib.text import Text

    families, _ = _fonts(frozenset("".join(names)))
    if names:
        for text in figure.findobj(Text):
            text.set_fontfamily(list(families))
    check_regular(path)
    with atomic_file(path) as file:
        figure.savefig(file, format="png", dpi=dpi, bbox_inches="tight")


def can_draw(text: str) -> bool:
    """Whether the installed fonts have all characters of a text."""
    _, missing = _fonts(frozenset(text))
    return not missing


@functools.lru_cache(maxsize=1024)
def _fonts(characters: frozenset[str]) -> tuple[tuple[str, ...], frozenset[str]]:
    """Names of fonts for these characters, the usual ones first; characters that none has.

    White space and controls are drawn as nothing.
    """
    from matplotlib import rcParams
    from matplotlib.font_manager import fontManager

    usual = list(rcParams["font.family"])
    others = {
        font.name
        for font in fontManager.ttflist
        if (font.style, str(font.weight), font.stretch) in _UPRIGHT
        and not font.name.startswith(_NO_TEXT)
    }
    families, missing = list(usual), frozenset(filter(str.isprintable, characters))
    for name in (None, *sorted(others)):
        if not missing:
            break
        left = missing - _characters(tuple(usual) if name is None else (name,))
        if name is not None and left < missing:
            families.append(name)
        missing = left
    return tuple(families), missing


@functools.lru_cache(maxsize=256)
def _characters(families: tuple[str, ...]) -> frozenset[str]:
    """The characters of the file that matplotlib takes for these names."""
    from matplotlib.font_manager import FontProperties, findfont, get_font

    return frozenset(map(chr, get_font(findfont(FontProperties(list(families)))).get_charmap()))
