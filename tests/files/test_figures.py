"""Pictures with names in any script."""

import warnings
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager

from bert_jax.files import can_draw, figures, save_figure
from bert_jax.metrics.classification import ConfusionMatrix


@pytest.fixture(autouse=True)
def own_fonts(monkeypatch):
    """The fonts that come with matplotlib, and none of this machine."""
    place = Path(matplotlib.get_data_path())
    own = [font for font in fontManager.ttflist if Path(font.fname).is_relative_to(place)]
    monkeypatch.setattr(fontManager, "ttflist", own)
    figures._fonts.cache_clear()
    yield
    figures._fonts.cache_clear()


def test_drawable_characters():
    for text in ("", "pos", "Größe", "Тест", "العربية", "a\tb\n", "costs $1"):
        assert can_draw(text)
    for text in ("宠物", "हिन्दी", "pos 北"):
        assert not can_draw(text)
    # In DejaVu Sans Mono, and not in DejaVu Sans.
    assert can_draw("\u2312")


def test_a_character_is_taken_from_the_font_that_has_it(tmp_path):
    def drawn(names):
        figure = Figure(figsize=(1, 1))
        figure.text(0.3, 0.4, "\u2312", fontsize=40)
        save_figure(tmp_path / "picture.png", figure, names=names)
        return (tmp_path / "picture.png").read_bytes()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # older versions of matplotlib warn of the box
        box = drawn(())
        warnings.simplefilter("error")
        assert drawn(("\u2312",)) != box


def test_a_class_that_cannot_be_drawn_is_its_line_in_the_report(tmp_path):
    labels = ("宠物", "Тест", "\u2312 sign")
    matrix = ConfusionMatrix(labels, np.array([0, 1, 2]), np.array([0, 1, 1]))
    axes = matrix._figure().axes[0]
    names = ["line 1", "Тест", "\u2312 sign"]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == names
    assert [tick.get_text() for tick in axes.get_xticklabels()] == names
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        matrix.draw(tmp_path / "confusion.png")
    assert matrix.as_text().splitlines()[1].startswith("宠物  ")
