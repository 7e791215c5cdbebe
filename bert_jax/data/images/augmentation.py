"""Random changes of training images: a crop, a flip, and RandAugment.

The changes of an image are a function of a key, so those of example i in epoch e depend on the
seed, e and i alone: on no host, worker or earlier batch.
"""

import dataclasses
import functools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_jax.data.randomness import random_bits, uniform_at
from bert_jax.data.tensorflow import import_keras
from bert_jax.errors import OptionError, require_at_least, require_between
from bert_jax.tokenization.image_processing import Size

if TYPE_CHECKING:
    from PIL.Image import Image

# How often a part of an image is drawn that may not fit into it, as in Inception's training.
_TRIES = 10
# The positions of the random numbers of a key: four for each try, then the flip, then RandAugment.
_FLIP, _RANDAUGMENT = 4 * _TRIES, 4 * _TRIES + 1


@dataclasses.dataclass(frozen=True)
class AugmentationOptions:
    """How training images are changed; keys of the same names in section `data`.

    Attributes:
        crop_scale: least and greatest share of an image's area that a random part has (Szegedy et
            al., 2015), which is resized to the size of the model; (1, 1): no random part, images
            are resized and cropped as in an evaluation.
        crop_ratio: least and greatest ratio of the width of that part to its height.
        flip: probability that left and right are exchanged.
        randaugment_ops: operations of RandAugment (Cubuk et al., 2020) on each image; 0: none.
        randaugment_factor: their greatest strength, 0 to 1: magnitude 9 of 30 of the paper is 0.3.
    """

    crop_scale: tuple[float, ...] = (0.08, 1.0)
    crop_ratio: tuple[float, ...] = (3 / 4, 4 / 3)
    flip: float = 0.5
    randaugment_ops: int = 0
    randaugment_factor: float = 0.3

    def __post_init__(self) -> None:
        for name, most in (("crop_scale", 1.0), ("crop_ratio", 100.0)):
            values = getattr(self, name)
            if len(values) != 2 or values[0] > values[1]:
                raise OptionError(f"data.{name}", values, "give the least and the greatest value")
            for value in values:
                require_between(f"data.{name}", value, 0, most, without_low=True)
        require_between("data.flip", self.flip, 0, 1)
        require_at_least("data.randaugment_ops", self.randaugment_ops, 0, 16)
        require_between("data.randaugment_factor", self.randaugment_factor, 0, 1)

    @property
    def crops(self) -> bool:
        """Whether images are cropped at random."""
        return tuple(self.crop_scale) != (1.0, 1.0)


def augmented(
    image: "Image", key: np.ndarray, options: AugmentationOptions, size: Size, resample: int
) -> "Image":
    """An image changed at random.

    Args:
        image: an image in red, green and blue.
        key: uint64 [1].
        options: what is changed.
        size: height and width of a random part after it is resized.
        resample: Pillow's number of the filter.

    Returns:
        An image in red, green and blue; of another size only with a random part.
    """
    from PIL import Image, ImageOps

    if options.crops:
        box = random_part((image.height, image.width), key, options)
        image = image.crop(box).resize(size[::-1], resample)
    if uniform_at(key, _FLIP)[0] < options.flip:
        image = ImageOps.mirror(image)
    if options.randaugment_ops:
        image = Image.fromarray(_randaugmented(np.asarray(image, np.float32), key, options))
    return image


def random_part(
    size: Size, key: np.ndarray, options: AugmentationOptions
) -> tuple[int, int, int, int]:
    """A random part of an image: left, top, right, bottom, in pixels.

    The area is uniform, and the logarithm of the ratio. If no try fits, it is the largest part from
    the middle that has an allowed ratio.

    Args:
        size: height and width of the image.
        key: uint64 [1].
        options: share of the area, and ratio.
    """
    height, width = size
    low, high = options.crop_scale
    ratios = [math.log(ratio) for ratio in options.crop_ratio]
    for drawn in uniform_at(key, np.arange(4 * _TRIES)).reshape(_TRIES, 4).tolist():
        area = height * width * (low + (high - low) * drawn[0])
        ratio = math.exp(ratios[0] + (ratios[1] - ratios[0]) * drawn[1])
        wide, tall = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < wide <= width and 0 < tall <= height:
            left, top = int(drawn[2] * (width - wide + 1)), int(drawn[3] * (height - tall + 1))
            return left, top, left + wide, top + tall
    least, most = options.crop_ratio
    wide = min(width, max(1, round(height * most)))
    tall = min(height, max(1, round(width / least)))
    left, top = (width - wide) // 2, (height - tall) // 2
    return left, top, left + wide, top + tall


def _randaugmented(values: np.ndarray, key: np.ndarray, options: AugmentationOptions) -> Any:
    """Colours, float32 [height, width, 3] → changed ones, uint8 of the same shape."""
    layer = _layer(values.shape, options.randaugment_ops, options.randaugment_factor)
    # Each generator of the layer has its own state; with one for all, operation and strength would
    # depend on each other. A call with given states changes none, so that threads may share it.
    states = layer.non_trainable_variables
    positions = _RANDAUGMENT + np.arange(2 * len(states))
    bits = (random_bits(key, positions) >> np.uint64(33)).astype(np.int64).reshape(-1, 2)
    changed, _ = layer.stateless_call([], [*bits], values, training=True)
    return np.rint(np.asarray(changed)).clip(0, 255).astype(np.uint8)


@functools.lru_cache(maxsize=8)
def _layer(shape: tuple[int, ...], ops: int, factor: float) -> Any:
    layer = import_keras().layers.RandAugment(value_range=(0, 255), num_ops=ops, factor=factor)
    layer.build(shape)
    return layer
