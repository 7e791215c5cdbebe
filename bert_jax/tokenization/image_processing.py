"""`preprocessor_config.json`: how an image becomes the numbers that a model reads.

The pixels are those of transformers' ViTImageProcessor and DeiTImageProcessor: Pillow resizes, in
8 bits for each colour; then a crop from the middle, a scale, and mean and deviation of each colour.
"""

import dataclasses
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from bert_jax.errors import OptionError, UserError, first_line

if TYPE_CHECKING:
    from PIL.Image import Image

# The processors whose computation this is, and what each has where a file leaves a key out.
_VIT: Mapping[str, Any] = {"size": 224, "resample": 2}
_DEIT: Mapping[str, Any] = {"size": 256, "resample": 3, "do_center_crop": True, "crop_size": 224}
_TYPES = {"ViT": _VIT, "DeiT": _DEIT}
_ENDINGS = ("ImageProcessor", "ImageProcessorFast", "FeatureExtractor")
_TYPE_KEYS = ("image_processor_type", "feature_extractor_type")
# Keys of any processor that change nothing here.
_GENERIC = (
    *_TYPE_KEYS,
    *("processor_class", "data_format", "default_to_square", "device", "disable_grouping"),
    *("input_data_format", "return_tensors"),
)
# Pillow's numbers of its filters.
FILTERS = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3, "box": 4, "hamming": 5}
_MODES = {1: "L", 3: "RGB"}

Size = tuple[int, int]
"""Height and width in pixels."""


@dataclasses.dataclass(frozen=True)
class ImageProcessing:
    """The fields of `preprocessor_config.json` that change the pixels.

    Attributes:
        do_resize: whether images are resized to `size`.
        size: height and width; or the length of the shorter side, whose images keep their form.
        resample: Pillow's number of the filter: 0 nearest, 1 Lanczos, 2 bilinear, 3 bicubic, 4 box,
            5 Hamming.
        do_center_crop: whether the middle of `crop_size` is cut out; a smaller image gets zeros.
        crop_size: height and width.
        do_rescale: whether values are multiplied by `rescale_factor`.
        rescale_factor: usually 1 / 255.
        do_normalize: whether `image_mean` is subtracted, and the result divided by `image_std`.
        image_mean, image_std: of each colour.
        other: keys that change nothing here, which are written back.
    """

    do_resize: bool = True
    size: Size | int = (224, 224)
    resample: int = FILTERS["bilinear"]
    do_center_crop: bool = False
    crop_size: Size | None = None
    do_rescale: bool = True
    rescale_factor: float = 1 / 255
    do_normalize: bool = True
    image_mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    image_std: tuple[float, ...] = (0.5, 0.5, 0.5)
    other: Mapping[str, Any] = dataclasses.field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        if self.resample not in FILTERS.values():
            known = ", ".join(f"{number} ({name})" for name, number in FILTERS.items())
            raise OptionError("resample", self.resample, f"it must be one of {known}")
        if self.do_center_crop and self.crop_size is None:
            raise OptionError("crop_size", None, "give it, or set do_center_crop to false")
        if self.do_normalize and len(self.image_mean) != len(self.image_std):
            rule = f"it must have the {len(self.image_mean)} values of image_mean"
            raise OptionError("image_std", list(self.image_std), rule)
        if self.do_normalize and not all(self.image_std):
            raise OptionError("image_std", list(self.image_std), "no value may be 0")

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Self:
        """The processing of the contents of a file.

        Raises:
            OptionError: a key has a value that is not computed.
        """
        fields = {**_defaults(fields), **fields}
        known = {field.name for field in dataclasses.fields(cls)} - {"other"}
        own: dict[str, Any] = {key: fields[key] for key in known & fields.keys()}
        own = {key: value for key, value in own.items() if value is not None}
        for key in own.keys() & {"size", "crop_size"}:
            is_square = key == "crop_size" or fields.get("default_to_square") is not False
            own[key] = _size(key, own[key], is_square=is_square)
        if "crop_size" in own and isinstance(own["crop_size"], int):
            raise OptionError("crop_size", fields["crop_size"], "give height and width")
        for key in own.keys() & {"image_mean", "image_std"}:
            values = own[key] if isinstance(own[key], list | tuple) else [own[key]]
            if not all(isinstance(value, int | float) and math.isfinite(value) for value in values):
                raise OptionError(key, own[key], "give a number for each colour")
            own[key] = tuple(map(float, values))
        for key, kind in (("rescale_factor", float), ("resample", int)):
            if key in own and (isinstance(own[key], bool) or not isinstance(own[key], int | kind)):
                raise OptionError(key, own[key], "give a number")
        other = {key: value for key, value in fields.items() if key not in known}
        for key, value in other.items():
            # Pillow's images are converted to the colours of the model in any case.
            if value and key not in (*_GENERIC, "do_convert_rgb"):
                raise OptionError(key, value, "this step is not computed: give another model")
        return cls(**own, other=MappingProxyType(other))

    @property
    def fields(self) -> dict[str, Any]:
        """The contents of a file."""

        def size(value: Size | int | None) -> Any:
            if isinstance(value, tuple):
                return {"height": value[0], "width": value[1]}
            return value and {"shortest_edge": value}

        own = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name not in ("other", "size", "crop_size")
        }
        own |= {"size": size(self.size), "crop_size": size(self.crop_size)}
        own |= {"image_mean": [*self.image_mean], "image_std": [*self.image_std]}
        if not self.do_center_crop:
            del own["do_center_crop"]
        return {key: value for key, value in {**self.other, **own}.items() if value is not None}

    @classmethod
    def for_channels(cls, channels: int, size: Size) -> Self:
        """Images are resized, and their values scaled to -1 … 1."""
        halves = (0.5,) * channels
        return cls(size=size, image_mean=halves, image_std=halves)

    def with_size(self, height: int, width: int) -> Self:
        """The processing whose pixels have another height and width."""
        own: dict[str, Any] = {"size": (height, width), "do_resize": True}
        if self.do_center_crop and self.crop_size:
            # The share of an image that is left after the crop stays the same.
            shortest = self.size if isinstance(self.size, int) else min(self.size)
            factor = shortest / min(self.crop_size)
            own["size"] = (round(height * factor), round(width * factor))
            if isinstance(self.size, int):
                own["size"] = min(own["size"])
            own["crop_size"] = (height, width)
        return dataclasses.replace(self, **own)

    @property
    def output_size(self) -> Size | None:
        """Height and width of the pixels; None: they depend on the image."""
        if self.do_center_crop:
            return self.crop_size
        return self.size if self.do_resize and isinstance(self.size, tuple) else None

    def pixels(self, image: "Image", channels: int = 3) -> np.ndarray:
        """An image as a model reads it, float32 [height, width, colours].

        Args:
            image: any image of Pillow.
            channels: number of colours: 3 for red, green and blue, or 1 for grey.
        """
        image = in_colours(image, channels)
        if self.do_resize:
            size = self._resized(image.height, image.width)
            image = image.resize(size[::-1], self.resample)
        values = np.asarray(image).reshape(image.height, image.width, channels)
        if self.do_center_crop and self.crop_size:
            values = _middle(values, self.crop_size)
        return self.normalized(values)

    def normalized(self, values: np.ndarray) -> np.ndarray:
        """Colours, 0 to 255 → the numbers that a model reads, float32 [height, width, colours]."""
        if self.do_rescale:
            # In float64, as transformers does.
            values = (values.astype(np.float64) * self.rescale_factor).astype(np.float32)
        values = values.astype(np.float32)
        if not self.do_normalize:
            return values
        count = values.shape[-1]
        if len(self.image_mean) not in (1, count):
            rule = f"the model reads {count} colours: give a number for each"
            raise OptionError("image_mean", list(self.image_mean), rule)
        mean, deviation = (np.array(each, np.float32) for each in (self.image_mean, self.image_std))
        return (values - mean) / deviation

    def colours(self, pixels: np.ndarray) -> np.ndarray:
        """The inverse of `normalized`: float32 → uint8, of the same shape."""
        values = pixels.astype(np.float64)
        if self.do_normalize:
            values = values * np.array(self.image_std) + np.array(self.image_mean)
        if self.do_rescale:
            values = values / self.rescale_factor
        return np.rint(values).clip(0, 255).astype(np.uint8)

    def _resized(self, height: int, width: int) -> Size:
        """The size after resizing; the shorter side is a whole number, the longer is cut to one."""
        if isinstance(self.size, tuple):
            return self.size
        shorter, longer = sorted((height, width))
        sides = self.size, int(self.size * longer / shorter)
        return sides if height <= width else sides[::-1]


def check_colours(channels: int) -> None:
    """Raises OptionError where image files do not have so many colours."""
    if channels not in _MODES:
        rule = "image files have 3 colours, or 1 for grey: give pixel_values to the module"
        raise OptionError("model.num_channels", channels, rule)


def in_colours(image: "Image", channels: int) -> "Image":
    """An image upright, as its EXIF data say, in red, green and blue (3) or in grey (1).

    Raises:
        UserError: its EXIF data are damaged; the message has no location.
    """
    from PIL import ImageOps

    try:
        upright = ImageOps.exif_transpose(image)
    # Errors of any kind, as AttributeError or struct.error: Pillow writes the data again, too.
    except Exception as error:
        problem = f"the EXIF data of the image cannot be read: {first_line(error)}"
        raise UserError(f"{problem}; save it again without them, or remove it") from error
    return upright.convert(_MODES[channels])


def _defaults(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """The values of the keys that a file leaves out, by its type."""
    names = [fields[key] for key in _TYPE_KEYS if fields.get(key)]
    known = {f"{name}{ending}": _TYPES[name] for name in _TYPES for ending in _ENDINGS}
    for name in names:
        if name not in known:
            rule = f"known are {', '.join(known)}: give another model"
            raise OptionError("image_processor_type", name, rule)
    return known[names[0]] if names else _VIT


def _size(key: str, value: Any, *, is_square: bool) -> Size | int:
    """Height and width, or the length of the shorter side.

    Older files have one number: for both, or, if it `is_square` no longer, for the shorter one.
    """
    if isinstance(value, Mapping):
        value = dict(value)
        sides = [value.pop(name, None) for name in ("height", "width")]
        shortest = value.pop("shortest_edge", None)
        given = sides if shortest is None else [shortest]
        is_one = shortest is None or sides == [None, None]
        if any(value.values()) or not is_one or not all(map(_is_length, given)):
            rule = "give height and width, or shortest_edge, as whole numbers above 0"
            raise OptionError(key, value, rule)
        return given[0] if shortest is not None else (given[0], given[1])
    if _is_length(value) and not is_square:
        return int(value)
    both = [value, value] if _is_length(value) else value
    if not (isinstance(both, list | tuple) and len(both) == 2 and all(map(_is_length, both))):
        raise OptionError(key, value, "give height and width as whole numbers above 0")
    return both[0], both[1]


def _is_length(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _middle(values: np.ndarray, size: Size) -> np.ndarray:
    """The middle of an image, [height, width, colours]; what is outside of it is 0."""
    for axis, length in enumerate(size):
        have = values.shape[axis]
        # An odd row that is left over is cut below; padding begins above, as in transformers.
        if have < length:
            padding = [(0, 0)] * values.ndim
            padding[axis] = (length - have + 1) // 2, (length - have) // 2
            values = np.pad(values, padding)
        start = max(have - length, 0) // 2
        values = values.take(range(start, start + length), axis)
    return values
