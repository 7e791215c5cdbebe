"""The section `data` of the classes of images."""

import dataclasses
from typing import Any

from bert_jax.data.images.augmentation import AugmentationOptions
from bert_jax.data.images.options import ImageFileOptions
from bert_jax.errors import OptionError, require_at_least, require_between, require_one_of
from bert_jax.tasks.base.labelled_options import ClassData
from bert_jax.tokenization.image_processing import FILTERS, ImageProcessing, Size


@dataclasses.dataclass(frozen=True)
class ImageClassificationData(ClassData, ImageFileOptions, AugmentationOptions):
    """The section `data` of a config.

    Attributes:
        labels: names of the classes in the order of their numbers; (): those of the data.
        label_smoothing: share of a target that all classes get alike (Szegedy et al., 2016).
        image_size: height and width of the pixels that the model reads; 0: as its files say, and of
            a new model `model.image_size`. Positions are interpolated for another size.
        image_mean, image_std: of each colour, which images are normalised by; (): as the model's
            files say, and 0.5 of a new model.
        resample: the filter by which images are resized, a name of Pillow; "": as the model's files
            say, and bilinear of a new model.
    """

    labels: tuple[str, ...] = ()
    label_smoothing: float = 0.0
    image_size: int = 0
    image_mean: tuple[float, ...] = ()
    image_std: tuple[float, ...] = ()
    resample: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        AugmentationOptions.__post_init__(self)
        if self.length:
            rule = "all images of a model have the same number of tokens: set {data.image_size}"
            raise OptionError("data.length", self.length, rule)
        require_between("data.label_smoothing", self.label_smoothing, 0, 1, without_high=True)
        require_at_least("data.image_size", self.image_size, 0, 1 << 14)
        require_one_of("data.resample", self.resample, ("", *FILTERS))
        for name in ("image_mean", "image_std"):
            for value in getattr(self, name):
                is_deviation = name == "image_std"
                require_between(f"data.{name}", value, 0, 1e6, without_low=is_deviation)
            if len(getattr(self, name)) not in (0, 1, 3):
                rule = "give a number for each colour"
                raise OptionError(f"data.{name}", getattr(self, name), rule)

    def processing(
        self, stored: ImageProcessing | None, size: Size, channels: int
    ) -> ImageProcessing:
        """How images become pixels: as the files of a model say, but for the keys that are set.

        Args:
            stored: the steps of the model that the training starts from; None: a new model.
            size: height and width of a new model's images.
            channels: the colours of an image.
        """
        made = stored or ImageProcessing.of_colours(channels, size)
        if self.image_size:
            made = made.with_size(self.image_size, self.image_size)
        changes: dict[str, Any] = {
            name: tuple(value)
            for name in ("image_mean", "image_std")
            if (value := getattr(self, name))
        }
        if self.resample:
            changes["resample"] = FILTERS[self.resample]
        return dataclasses.replace(made, **changes)
