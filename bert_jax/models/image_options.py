"""The images that an encoder reads, where it reads no text: `EncoderConfig.images`."""

import dataclasses
from typing import Any

from bert_jax.errors import OptionError, require_at_least, require_one_of
from bert_jax.models.activations import ACTIVATIONS
from bert_jax.models.head_options import HeadOptions

Size = int | tuple[int, int]
"""Height and width in pixels; one number for a square."""

# More pixels in a row or column would be thousands of tokens for any patch that is in use.
_MOST_PIXELS = 1 << 14


@dataclasses.dataclass(frozen=True)
class ImageOptions(HeadOptions):
    """The form of the images, of their patches and of the pooler, under Hugging Face's names.

    Attributes:
        image_size: size of the images that the position table is for; None: there are none.
        patch_size: size of a patch; pixels beyond the last whole patch are not read.
        num_channels: number of channels of an image.
        pooler_output_size: width of the pooler's output; None: D.
        pooler_act: activation of the pooler.
        has_distillation_token: whether there is a token beside [CLS] that learns from a teacher
            (DeiT).
    """

    keys = ("image_size", "patch_size", "num_channels", "pooler_output_size", "pooler_act")
    image_size: Size | None = None
    patch_size: Size = 16
    num_channels: int = 3
    pooler_output_size: int | None = None
    pooler_act: str = "tanh"
    has_distillation_token: bool = False

    def __post_init__(self) -> None:
        for name in ("image_size", "patch_size"):
            value = getattr(self, name)
            if isinstance(value, list | tuple):
                if len(value) != 2:
                    rule = "give height and width, or one number for both"
                    raise OptionError(f"model.{name}", value, rule)
                object.__setattr__(self, name, tuple(value))  # JSON has lists
            for pixels in value if isinstance(value, list | tuple) else (value,):
                require_at_least(f"model.{name}", pixels, 1, _MOST_PIXELS)
        require_at_least("model.num_channels", self.num_channels, 1)
        require_at_least("model.pooler_output_size", self.pooler_output_size, 1)
        require_one_of("model.pooler_act", self.pooler_act, tuple(ACTIVATIONS))

    def check(self, config: Any) -> None:
        """Raises OptionError for patches that are larger than the images."""
        if self.image_size is not None and min(self.grid(self.pixels)) < 1:
            rule = f"an image has {self.image_size}: give a smaller patch"
            raise OptionError("model.patch_size", self.patch_size, rule)

    @property
    def pixels(self) -> tuple[int, int]:
        """Height and width of an image."""
        assert self.image_size is not None
        return _pair(self.image_size)

    @property
    def patch(self) -> tuple[int, int]:
        """Height and width of a patch."""
        return _pair(self.patch_size)

    def grid(self, pixels: tuple[int, ...]) -> tuple[int, int]:
        """The number of patches along height and width of an image of this size."""
        (height, width), (rows, columns) = pixels, self.patch
        return height // rows, width // columns

    @property
    def num_leading_tokens(self) -> int:
        """The number of tokens before the patches: [CLS], and the distillation token."""
        return 2 if self.has_distillation_token else 1

    def num_tokens(self, pixels: tuple[int, ...]) -> int:
        """T of an image of this height and width."""
        rows, columns = self.grid(pixels)
        return self.num_leading_tokens + rows * columns


def _pair(size: Size) -> tuple[int, int]:
    return size if isinstance(size, tuple) else (size, size)
