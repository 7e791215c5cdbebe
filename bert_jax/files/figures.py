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
    """Writes a figure of matplotlib as a PNG file; see `atomic_file`.

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
        figure.savefig(file, format="png", dpi=dpi)


def can_draw(text: str) -> bool:
    """Whether the installed fonts have all characters of a text."""
    _, missing = _fonts(frozenset(text))
    return not missing


@functools.lru_cache(maxsize=1024)
def _fonts(characters: frozenset[str]) -> tuple[tuple[str, ...], frozenset[str]]:
    """Names of fonts for these characters, the usual one first; characters that none has."""
    from matplotlib import rcParams
    from matplotlib.font_manager import FontProperties, findfont, fontManager

    usual = FontProperties(family=rcParams["font.family"])
    families, missing = list(rcParams["font.family"]), _without(characters, findfont(usual))
    others = {
        font.name
        for font in fontManager.ttflist
        if (font.style, str(font.weight), font.stretch) in _UPRIGHT
        and not font.name.startswith(_NO_TEXT)
    }
    for name in sorted(others):
        if not missing:
            break
        # Several files may have one name: the one that matplotlib would take.
        left = _without(missing, findfont(FontProperties(family=[name])))
        if left < missing:
            families.append(name)
            missing = left
    return tuple(families), missing


def _without(characters: frozenset[str], file: str) -> frozenset[str]:
    """The characters that a font lacks; white space and controls are drawn as nothing."""
    glyphs = _glyphs(file)
    return frozenset(each for each in characters if ord(each) not in glyphs and each.isprintable())


@functools.lru_cache(maxsize=256)
def _glyphs(file: str) -> frozenset[int]:
    """The code points of a font's characters."""
    from matplotlib.font_manager import get_font

    return frozenset(get_font(file).get_charmap())
