"""What a model of images has in place of a tokenizer: how an image becomes its pixels."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, Self

from bert_jax.errors import OptionError, UserError
from bert_jax.files import as_path, fetch, read_json_object
from bert_jax.files.paths import DESCRIPTION
from bert_jax.tokenization.description import Description, SpecialIds, SpecialTokens
from bert_jax.tokenization.encoding import Pieces, Template
from bert_jax.tokenization.image_processing import ImageProcessing, Size
from bert_jax.tokenization.interface import Tokenizer

IMAGES = "images"
"""The kind that a family names in the place of a kind of tokenizer."""

IMAGE_PROCESSOR_FILE = "preprocessor_config.json"


class ImageProcessor(Tokenizer):
    """Images to pixels; it is saved, loaded and compared like a tokenizer, and refuses texts.

    Attributes:
        processing: the steps, with the fields of `preprocessor_config.json`.
        channels: the colours of an image: 3, or 1 for grey.
    """

    special_ids = SpecialIds(None, None, None, None, None)
    vocab_size = 0
    description = Description(SpecialTokens({}), Template("A", "A B"))
    _pieces: list[str] = []  # noqa: RUF012 - no piece is ever added

    def __init__(self, processing: ImageProcessing, channels: int = 3) -> None:
        """Raises OptionError where there are not 1 or 3 colours."""
        if channels not in (1, 3):
            rule = "images have 3 colours, or 1 for grey"
            raise OptionError("model.num_channels", channels, rule)
        self.processing, self.channels = processing, channels

    @property
    def size(self) -> Size | None:
        """Height and width of the pixels; None: they depend on the image."""
        return self.processing.output_size

    def to_pieces(self, texts: Sequence[str]) -> list[Pieces]:
        self._refuse()

    def encode_sentences(self, sentences: Sequence[str]) -> list[list[int]]:
        self._refuse()

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        self._refuse()

    def token_to_id(self, token: str) -> int | None:
        return None

    def _with_added(self, description: Description) -> Self:
        self._refuse()

    def _with_pieces(self, words: Sequence[str]) -> Self:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise UserError(
            "the model reads images and has no tokenizer; give images, or a model that reads text"
        )

    def _with_pieces(self, words: Sequence[str]) -> Self:
        raise _refusal()

    def fingerprint(self) -> str:
        own = {key: value for key, value in vars(self.processing).items() if key != "stored"}
        return self._digest([{**own, "other": None}, self.channels])

    def save(self, directory: str | Path, *, max_length: int | None = None) -> None:
        """Writes `preprocessor_config.json` as it was read; nothing if there was none."""
        folder = as_path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        if content := self.processing.to_bytes():
            (folder / IMAGE_PROCESSOR_FILE).write_bytes(content)


def read_image_processor(path: str | Path) -> ImageProcessor:
    """The image processor of a model directory, or of a file.

    Without `preprocessor_config.json`, images are resized to the `image_size` of `config.json`, and
    their values are scaled to -1 … 1.

    Raises:
        UserError: the path does not exist, a file is damaged, or a step is not computed.
    """
    directory = fetch(as_path(path))
    if not directory.exists():
        raise UserError(f"{directory} does not exist; give a directory with {IMAGE_PROCESSOR_FILE}")
    if directory.is_file():
        return ImageProcessor(ImageProcessing.read(directory))
    config, file = directory / DESCRIPTION, directory / IMAGE_PROCESSOR_FILE
    fields: Mapping[str, Any] = read_json_object(config) if config.exists() else {}
    channels = fields.get("num_channels", 3)
    if file.exists():
        return ImageProcessor(ImageProcessing.read(file), channels)
    size = fields.get("image_size", 224)
    height, width = (size, size) if isinstance(size, int) else size
    return ImageProcessor(ImageProcessing.of_colours(channels, (height, width), b""), channels)
