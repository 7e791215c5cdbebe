"""Images as rows of a model: decoded, resized and normalised; all have the same length."""

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.data.examples import ImageFile
from bert_jax.data.images.decoding import decode
from bert_jax.data.images.options import ImageFileOptions
from bert_jax.data.images.reading import ImageParser, open_images
from bert_jax.errors import OptionError, UserError
from bert_jax.models.config import EncoderConfig
from bert_jax.tasks.base.predict_spec import InputReader, PredictOptions
from bert_jax.tasks.base.predictor import (
    BatchOptions,
    EncodedExample,
    ExampleError,
    Model,
    Predictor,
)
from bert_jax.tokenization import Tokenizer
from bert_jax.tokenization.image_processing import Size, check_colours
from bert_jax.tokenization.image_processor import ImageProcessor

Prediction = TypeVar("Prediction")

# Of a chunk, see `Predictor.characters`: its unit is some 100 bytes in memory.
_BYTES_PER_CHARACTER = 100


@dataclasses.dataclass(frozen=True)
class ImagePredictOptions(PredictOptions, ImageFileOptions):
    """The options of the tasks that read images."""


@dataclasses.dataclass(frozen=True, eq=False)
class ImageRow:
    """An image as a model reads it.

    Attributes:
        pixels: float32 [height, width, colours].
        tokens: T, which `len` returns.
    """

    pixels: np.ndarray
    tokens: int

    def __len__(self) -> int:
        return self.tokens


def image_processor(tokenizer: Tokenizer | None, description: ModelDescription) -> ImageProcessor:
    """How the images of a model become pixels.

    Raises:
        UserError: the model reads texts.
    """
    if not isinstance(tokenizer, ImageProcessor):
        raise UserError(
            f"a {description.class_name or 'model of this family'} reads texts, not images; give a "
            "model that reads images"
        )
    return tokenizer


def image_size(processor: ImageProcessor, config: EncoderConfig) -> tuple[Size, int]:
    """Height and width of the pixels of a model, and their T tokens.

    Raises:
        OptionError: the size depends on the image, or is less than a patch; or the model reads
            colours that image files do not have.
    """
    size, images = processor.size, config.images
    assert images is not None, "a family with an image processor"
    check_colours(processor.channels)
    if size is None:
        rule = "give height and width as size, or a crop_size, in preprocessor_config.json"
        raise OptionError("size", processor.processing.size, rule)
    if min(images.grid(size)) < 1:
        rule = f"it must be at least a patch, {images.patch[0]} × {images.patch[1]} pixels"
        raise OptionError("size", list(size), rule)
    return size, images.num_tokens(size)


class ImagePredictor(Predictor[ImageFile, Prediction]):
    """A predictor of images, one row each; subclasses define how a row becomes a prediction."""

    packs_rows = False
    unit = "images"

    def __init__(self, model: Model, options: BatchOptions) -> None:
        """Raises UserError for a model of texts, and OptionError for a maximum length."""
        self.processor = image_processor(model.tokenizer, model.description)
        self.size, self.tokens = image_size(self.processor, model.config)
        if options.max_length is not None:
            rule = f"each image of this model has {self.tokens} tokens: leave it out"
            raise OptionError("max_length", options.max_length, rule)
        super().__init__(model, options)

    @property
    def limit(self) -> int:
        return self.tokens

    def encode(self, examples: Sequence[ImageFile]) -> list[EncodedExample | ExampleError]:
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            return list(threads.map(self._encoded, examples))

    def _encoded(self, image: ImageFile) -> EncodedExample | ExampleError:
        try:
            pixels = self.processor.processing.pixels(decode(image), self.processor.channels)
        except UserError as error:
            return ExampleError(str(error))
        return EncodedExample([ImageRow(pixels, self.tokens)])

    def pad(self, rows: Mapping[int, ImageRow], count: int, length: int) -> dict[str, np.ndarray]:
        """`pixel_values`, float32 [B, height, width, colours]."""
        pixels = np.zeros((count, *self.size, self.processor.channels), np.float32)
        for row, image in rows.items():
            pixels[row] = image.pixels
        return {"pixel_values": pixels}

    def characters(self, example: Any) -> int:
        height, width = self.size
        return 4 * height * width * self.processor.channels // _BYTES_PER_CHARACTER


def image_files(paths: Iterable[str | os.PathLike[str]]) -> list[ImageFile]:
    """Paths of images, as the inputs of an `ImagePredictor`.

    Raises:
        UserError: an element is no path.
    """
    for path in paths:
        if not isinstance(path, str | os.PathLike):
            raise UserError(f"{path!r:.80} is no path; give the paths of image files")
    return [ImageFile(Path(path).name, os.path.expanduser(path)) for path in paths]


IMAGES: InputReader[ImageFile] = InputReader(ImageParser, open_images)
"""Images of folders, lists of files and data sets."""
