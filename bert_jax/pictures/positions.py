"""The position table of a model: its values, and how similar positions are."""

from typing import TYPE_CHECKING, Any

import numpy as np

from bert_jax.errors import UserError
from bert_jax.metrics.similarity import similarities
from bert_jax.models.config import EncoderConfig
from bert_jax.models.embeddings import sinusoids
from bert_jax.pictures.page import Page, figure, text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# A picture has a pixel for each.
MOST_POSITIONS = 512


def position_table(config: EncoderConfig, learned: np.ndarray | None = None) -> np.ndarray:
    """The vectors of the positions of a text, float32 [T, E], without rows for no position.

    Args:
        config: architecture of the model.
        learned: the table among its parameters.

    Raises:
        UserError: the model has no table, as its positions are relative.
    """
    if config.position_kind == "sinusoidal":
        table = sinusoids(config.max_position_embeddings, config.embedding_width)
    elif learned is not None:
        table = np.asarray(learned, np.float32)
    else:
        kind = "relative" if config.relative_attention else config.position_kind
        problem = f"positions of this model are {kind}: there is no table to draw"
        raise UserError(f"{problem}; give a model with a learned or sinusoidal one")
    return table[config.position_offset :]


def positions_page(kind: str, table: np.ndarray) -> Page:
    """The page of a table.

    Args:
        kind: "learned" or "sinusoidal".
        table: float32 [T, E].
    """
    count, width = table.shape
    shown = table[:MOST_POSITIONS]
    similar = similarities(shown, shown, "cosine")
    few = f" The first {len(shown):,} are shown." if len(shown) < count else ""
    body = (
        f"<p>{count:,} {text(kind)} positions of width {width:,}.{few}</p>\n"
        "<h2>Values</h2>\n"
        + figure(lambda made: _draw_values(made, shown), "values of the table", height=4)
        + "<h2>Similarity</h2>\n<p>Cosine of the vectors of two positions.</p>\n"
        + '<div class="panels">\n'
        + figure(lambda made: _draw_similarity(made, similar), "all pairs", width=5, height=4.2)
        + figure(lambda made: _draw_rows(made, similar), "three positions", width=5, height=4.2)
        + "</div>\n"
    )
    return Page("Positions", body)


def _draw_values(made: "Figure", table: np.ndarray) -> None:
    axes = made.subplots()
    # Few values are far from the others.
    most = float(np.quantile(np.abs(table), 0.99)) or 1.0
    style: dict[str, Any] = {"aspect": "auto", "interpolation": "nearest", "cmap": "RdBu"}
    image = axes.imshow(table, vmin=-most, vmax=most, **style)
    axes.set_xlabel("dimension")
    axes.set_ylabel("position")
    made.colorbar(image, extend="both")


def _draw_similarity(made: "Figure", similar: np.ndarray) -> None:
    axes = made.subplots()
    image = axes.imshow(similar, interpolation="nearest", cmap="viridis", vmax=1)
    axes.set_xlabel("position")
    axes.set_ylabel("position")
    made.colorbar(image)


def _draw_rows(made: "Figure", similar: np.ndarray) -> None:
    axes = made.subplots()
    last = len(similar) - 1
    for position in dict.fromkeys((last // 8, last // 2, last - last // 8)):
        axes.plot(similar[position], label=f"to position {position}", linewidth=1.2)
    axes.set_xlabel("position")
    axes.grid(alpha=0.25)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, 1.12), ncols=3)
