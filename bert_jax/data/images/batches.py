"""The pixels of training images, changed at random in each epoch."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from bert_jax.data.examples import Example, ImageFile
from bert_jax.data.images.augmentation import AugmentationOptions, augmented
from bert_jax.data.images.decoding import decode
from bert_jax.data.randomness import derive_key
from bert_jax.errors import UserError
from bert_jax.tokenization.image_processing import Size, in_colours
from bert_jax.tokenization.image_processor import ImageProcessor


@dataclasses.dataclass(frozen=True)
class TrainingImages:
    """Training images, decoded when a batch needs them.

    Attributes:
        examples: the images.
        processor: how an image becomes pixels.
        size: height and width of the pixels.
        augmentation: how they are changed at random.
        seed: seed of the changes.
    """

    examples: Sequence[Example[ImageFile]]
    processor: ImageProcessor
    size: Size
    augmentation: AugmentationOptions
    seed: int

    def pixels(self, chosen: np.ndarray, epoch: int | None = None) -> np.ndarray:
        """The pixels of some images, float32 [B, height, width, colours].

        Args:
            chosen: int64 [B], numbers of images; -1 for one of zeros.
            epoch: the epoch whose changes they have; None: they have none.

        Raises:
            UserError: an image cannot be read; the message names its file.
        """
        pixels = np.zeros((len(chosen), *self.size, self.processor.channels), np.float32)
        for row, number in enumerate(chosen.tolist()):
            if number >= 0:
                pixels[row] = self._pixels(number, epoch)
        return pixels

    def _pixels(self, number: int, epoch: int | None) -> np.ndarray:
        example = self.examples[number]
        processing, channels = self.processor.processing, self.processor.channels
        try:
            image = in_colours(decode(example.input), 3 if epoch is not None else channels)
        except UserError as error:
            raise UserError(f"{example.location}: {error}") from error
        if epoch is None:
            return processing.pixels(image, channels)
        key = derive_key(self.seed, epoch, number)
        options = self.augmentation
        image = augmented(image, key, options, self.size, processing.resample)
        if options.crops:  # it has the size of the model already
            processing = dataclasses.replace(processing, do_resize=False, do_center_crop=False)
        return processing.pixels(image, channels)
