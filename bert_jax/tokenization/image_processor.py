"""What is in place of the tokenizer where a model reads images: `preprocessor_config.json`."""

import dataclasses
import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from bert_jax.errors import OptionError, UserError
from bert_jax.files import as_path, fetch, read_json_object
from bert_jax.files.paths import DESCRIPTION
from bert_jax.tokenization.description import Description, SpecialTokens
from bert_jax.tokenization.encoding import Template
from bert_jax.tokenization.image_processing import ImageProcessing, Size
from bert_jax.tokenization.interface import Tokenizer

IMAGES = "images"
"""The kind that a family names in the place of a kind of tokenizer."""

IMAGE_PROCESSOR_FILE = "preprocessor_config.json"


def _refuse(*arguments: object, **options: object) -> NoReturn:
    """Stands in the place of each method for texts."""
    raise UserError(
        "the model reads images and has no tokenizer; give images, or a model that reads text"
    )


class ImageProcessor(Tokenizer):
    """Images to pixels; it is saved, loaded and compared like a tokenizer, and refuses texts.

    Attributes:
        fields: the content of `preprocessor_config.json` under the names of transformers' image
            processors, such as `size`, `resample`, `crop_size`, `image_mean`; empty without a file.
        channels: the colours of an image: 3, or 1 for grey.
    """

    vocab_size = 0
    description = Description(SpecialTokens({}), Template("A", "A B"))
    _pieces: list[str] = []  # noqa: RUF012 - no piece is ever added
    special_ids = property(_refuse)
    to_pieces = encode_sentences = decode = token_to_id = _with_added = _with_pieces = _refuse

    def __init__(
        self,
        fields: Mapping[str, Any],
        *,
        channels: int = 3,
        size: Size = (224, 224),
        file: Path | None = None,
    ) -> None:
        """Takes the content of a file; its steps are read when there are images.

        Args:
            fields: see above.
            channels: number of colours.
            size: height and width of the pixels without fields.
            file: the file; None: the fields were chosen.
        """
        self.fields, self.channels = dict(fields), channels
        self._size, self._file = size, file
        self._stored = file and file.read_bytes()

    @functools.cached_property
    def processing(self) -> ImageProcessing:
        """How an image becomes pixels; without fields it is resized, and scaled to -1 … 1.

        Raises:
            OptionError: a step is not computed.
        """
        try:
            if self.fields:
                return ImageProcessing.from_fields(self.fields)
            return ImageProcessing.for_channels(self.channels, self._size)
        except OptionError as error:
            raise (error.at(self._file) if self._file else error) from error

    @property
    def size(self) -> Size | None:
        """Height and width of the pixels; None: they depend on the image."""
        return self.processing.output_size

    def fingerprint(self) -> str:
        """The same for files with the same steps, however they spell them."""
        steps = dataclasses.replace(self.processing, other={})
        return self._digest([steps.fields, self.channels])

    def save(self, directory: str | Path, *, max_length: int | None = None) -> None:
        """Writes `preprocessor_config.json` as it was read; nothing without fields."""
        folder = as_path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        if self.fields:
            content = json.dumps(self.fields, indent=2, sort_keys=True) + "\n"  # as transformers
            (folder / IMAGE_PROCESSOR_FILE).write_bytes(self._stored or content.encode())


def read_image_processor(path: str | Path) -> ImageProcessor:
    """The image processor of a model directory, or of a file; without a file it has no fields.

    Raises:
        UserError: the path does not exist, or a file is damaged.
    """
    directory = fetch(as_path(path))
    if not directory.exists():
        rule = f"give a directory with {IMAGE_PROCESSOR_FILE}"
        raise UserError(f"{directory} does not exist; {rule}")
    if directory.is_file():
        return ImageProcessor(read_json_object(directory), file=directory)
    config, file = directory / DESCRIPTION, directory / IMAGE_PROCESSOR_FILE
    model = read_json_object(config, directory) if config.exists() else {}
    size, channels = model.get("image_size", 224), model.get("num_channels", 3)
    height, width = (size, size) if isinstance(size, int) else size
    fields = read_json_object(file, directory) if file.exists() else {}
    return ImageProcessor(
        fields, channels=channels, size=(height, width), file=file if fields else None
    )
