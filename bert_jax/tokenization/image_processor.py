"""What is in place of the tokenizer where a model reads images: `preprocessor_config.json`."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, Self

from bert_jax.errors import UserError
from bert_jax.files import as_path, fetch, read_json_object
from bert_jax.tokenization.description import Description
from bert_jax.tokenization.encoding import Pieces
from bert_jax.tokenization.interface import Tokenizer

IMAGES = "images"
"""The kind that a family names in the place of a kind of tokenizer."""

IMAGE_PROCESSOR_FILE = "preprocessor_config.json"


class ImageProcessor(Tokenizer):
    """How the images of a model become arrays; everything about texts is refused in one line.

    Attributes:
        fields: the content of `preprocessor_config.json` under the names of transformers' image
            processors, such as `size`, `resample`, `crop_size`, `image_mean`; empty without a file.
    """

    vocab_size = 0

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self.fields = dict(fields)

    def __getattr__(self, name: str) -> NoReturn:
        # Special tokens and template, which every use of texts needs.
        if name in Tokenizer.__annotations__:
            raise _refusal()
        raise AttributeError(name)

    def to_pieces(self, texts: Sequence[str]) -> list[Pieces]:
        raise _refusal()

    def encode_sentences(self, sentences: Sequence[str]) -> list[list[int]]:
        raise _refusal()

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        raise _refusal()

    def token_to_id(self, token: str) -> int | None:
        raise _refusal()

    def _with_added(self, description: Description) -> Self:
        raise _refusal()

    def _with_pieces(self, words: Sequence[str]) -> Self:
        raise _refusal()

    def fingerprint(self) -> str:
        return self._digest([self.fields])

    def save(self, directory: str | Path, *, max_length: int | None = None) -> None:
        """Writes `preprocessor_config.json` as it was read; nothing without fields."""
        if self.fields:
            content = json.dumps(self.fields, indent=2)
            (Path(directory) / IMAGE_PROCESSOR_FILE).write_text(f"{content}\n", encoding="utf-8")


def _refusal() -> UserError:
    return UserError(
        "the model reads images and has no tokenizer; give images, or a model that reads text"
    )


def read_image_processor(path: str | Path) -> ImageProcessor:
    """The image processor of a model directory; without a file it has no fields.

    Raises:
        UserError: the file is damaged.
    """
    directory = fetch(as_path(path))
    file = directory / IMAGE_PROCESSOR_FILE
    if not file.exists():
        return ImageProcessor({})
    return ImageProcessor(read_json_object(file, directory))
