"""Weights of the patches of an image: the image, and the same with the weights over it."""

import base64
import dataclasses
import io
from collections.abc import Sequence

import numpy as np

from bert_jax.pictures.page import Page, name, text

# Images are shown with at least this many pixels: patches of small ones would not be seen.
_WIDTH = 320
_STYLE = """
.image { display: flex; flex-wrap: wrap; gap: 1em; align-items: end; margin: 0; }
.image img { width: 20em; max-width: 100%; image-rendering: pixelated; }
"""


@dataclasses.dataclass(frozen=True)
class ImageWeights:
    """An image with weights of its patches.

    Attributes:
        title: name of the image.
        image: uint8 [height, width, colours].
        weights: float [rows, columns], at least 0.
    """

    title: str
    image: np.ndarray
    weights: np.ndarray

    def element(self) -> str:
        """The element of the page: both images, and the greatest weight."""
        rows, columns = self.weights.shape
        greatest = float(self.weights.max())
        row, column = np.unravel_index(self.weights.argmax(), self.weights.shape)
        caption = (
            f"{rows} × {columns} patches; the greatest weight, {greatest:.3g}, has row {row + 1}, "
            f"column {column + 1}"
        )
        pictures = (
            f'<img src="data:image/png;base64,{png(values)}" alt="{text(what)}">'
            for values, what in (
                (self.image, self.title),
                (overlaid(self.image, self.weights), f"weights of the patches of {self.title}"),
            )
        )
        body = f'<div class="image">{"".join(pictures)}</div>'
        return f"<figure>{body}<figcaption>{name(self.title)}: {caption}</figcaption></figure>\n"


def overlaid(image: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """An image in grey under the colours of its weights, from the least to the greatest.

    Args:
        image: uint8 [height, width, colours].
        weights: float [rows, columns].

    Returns:
        uint8 [height, width, 3], at least 320 pixels wide.
    """
    from matplotlib import colormaps
    from PIL import Image

    low, high = float(weights.min()), float(weights.max())
    scaled = ((weights - low) / ((high - low) or 1.0)).astype(np.float32)
    factor = max(1, -(-_WIDTH // image.shape[1]))
    size = image.shape[1] * factor, image.shape[0] * factor
    grey = Image.fromarray(image.mean(axis=-1).astype(np.uint8)).resize(size, 0)
    heat = np.asarray(Image.fromarray(scaled).resize(size, 2))
    colours = colormaps["viridis"](heat)[..., :3]
    return np.rint(255 * 0.65 * colours + 0.35 * np.asarray(grey)[..., None]).astype(np.uint8)


def png(image: np.ndarray) -> str:
    """A PNG file in base64 of uint8 [height, width, colours], of 1 or 3 colours."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def image_weights_page(images: Sequence[ImageWeights] = ()) -> Page:
    """The page of some images."""
    return Page("Attention to images", "".join(each.element() for each in images), _STYLE)
