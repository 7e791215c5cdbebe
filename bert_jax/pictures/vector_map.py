"""A map of vectors: two dimensions, by PCA or UMAP, coloured by labels; texts under the pointer."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from bert_jax.errors import OptionError, UserError, require_one_of
from bert_jax.pictures.page import COLOURS, Page, asset, name, table, text

METHODS = ("pca", "umap")
# Points of a page: more lie upon each other.
MOST_VECTORS = 5_000
_WIDTH, _HEIGHT, _MARGIN = 100.0, 70.0, 2.0
_LONGEST = 200
_SEED = 0


def plane(vectors: np.ndarray, method: str = "pca") -> tuple[np.ndarray, str]:
    """Vectors [B, D] in two dimensions, float64 [B, 2], and what is kept of them, in words.

    PCA: the projection on the two directions of the largest variance, each with its largest
    coefficient positive. UMAP (https://arxiv.org/abs/1802.03426) keeps neighbours, not distances.

    Raises:
        OptionError: the method does not exist, or is not installed.
        UserError: there are fewer than three vectors.
    """
    require_one_of("method", method, METHODS)
    if len(vectors) < 3:
        raise UserError(f"{len(vectors)} texts make no map; give three or more")
    return _pca(vectors) if method == "pca" else _umap(vectors)


def _pca(vectors: np.ndarray) -> tuple[np.ndarray, str]:
    centred = vectors.astype(np.float64) - vectors.mean(axis=0, dtype=np.float64)
    _, lengths, directions = np.linalg.svd(centred, full_matrices=False)
    first = directions[:2]
    first = first * np.sign(np.take_along_axis(first, np.abs(first).argmax(1)[:, None], 1))
    shares = lengths**2 / max((lengths**2).sum(), np.finfo(np.float64).tiny)
    points = centred @ first.T
    points = np.pad(points, ((0, 0), (0, 2 - points.shape[1])))  # vectors of one number
    kept = ", ".join(f"{share:.1%}" for share in shares[:2])
    return points, f"PCA: two directions with {kept} of the variance"


def _umap(vectors: np.ndarray) -> tuple[np.ndarray, str]:
    try:
        from umap import UMAP
    except ImportError as error:
        rule = "install it, pip install bert_jax[pictures], or choose {method=pca}"
        raise OptionError("method", "umap", rule, "UMAP is not installed") from error
    neighbours = min(15, len(vectors) - 1)
    made = UMAP(n_neighbors=neighbours, random_state=_SEED, n_jobs=1).fit_transform(vectors)
    return np.asarray(made, np.float64), f"UMAP of {neighbours} neighbours"


def map_page(
    vectors: np.ndarray, labels: Sequence[str], texts: Sequence[str], method: str = "pca"
) -> Page:
    """The page of a map.

    Args:
        vectors: [B, D].
        labels: the label of each; "" where there is none.
        texts: the text of each.
        method: one of `METHODS`.

    Raises:
        UserError: see `plane`; or there are more than `MOST_VECTORS`.
    """
    if len(vectors) > MOST_VECTORS:
        problem = f"{len(vectors):,} vectors are too many, a map takes {MOST_VECTORS:,}"
        raise UserError(f"{problem}; give fewer texts")
    points, kept = plane(vectors, method)
    counts = Counter(labels)
    colours = {
        label: colour for (label, _), colour in zip(counts.most_common(), COLOURS, strict=False)
    }
    places = _places(points)
    circles = "".join(
        _circle(place, label, content, colours.get(label, ""))
        for place, label, content in zip(places, labels, texts, strict=True)
    )
    body = (
        f"<p>{len(points):,} vectors of width {vectors.shape[1]:,}. {text(kept)}. A point has its "
        "text as a tooltip.</p>\n"
        f'<svg class="map" role="img" aria-label="map of vectors" viewBox="0 0 {_WIDTH:g} '
        f'{_HEIGHT:g}">\n{circles}</svg>\n'
    )
    rows = [[_label(label, colours), f"{count:,}"] for label, count in counts.most_common()]
    return Page("Map of vectors", body + table(["label", "texts"], rows), asset("vector_map.css"))


def _places(points: np.ndarray) -> np.ndarray:
    """Points of the drawing, in one scale for both dimensions."""
    low, high = points.min(axis=0), points.max(axis=0)
    space = np.array([_WIDTH, _HEIGHT]) - 2 * _MARGIN
    extent = high - low
    scale = min((float(s / e) for s, e in zip(space, extent, strict=True) if e), default=0.0)
    centred = (points - (low + high) / 2) * scale * [1, -1]  # SVG counts downwards
    return centred + np.array([_WIDTH, _HEIGHT]) / 2


def _circle(place: np.ndarray, label: str, content: str, colour: str) -> str:
    fill = f' style="fill: {colour}"' if colour else ""
    short = content[:_LONGEST] + "…" * (len(content) > _LONGEST)
    title = text(f"{label}: {short}" if label else short)
    x, y = place
    return f'<circle cx="{x:.2f}" cy="{y:.2f}" r="0.7"{fill}><title>{title}</title></circle>\n'


def _label(label: str, colours: dict[str, str]) -> str:
    colour = f' style="--colour: {colours[label]}"' if label in colours else ""
    return f'<span class="label"{colour}>{name(label or "without label")}</span>'
