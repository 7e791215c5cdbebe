"""The section `data` of the classes of images."""

import dataclasses
from typing import Any

from bert_jax.data.images.augmentation import AugmentationOptions
from bert_jax.data.images.options import ImageFileOptions
from bert_jax.errors import OptionError, require_between, require_one_of
from bert_jax.tasks.base.labelled_options import ClassData
from bert_jax.tokenization.image_processing import FILTERS, ImageProcessing


@dataclasses.dataclass(frozen=True)
class ImageClassificationData(ClassData, ImageFileOptions, AugmentationOptions):
    """The section `data` of a config.

    Attributes:
        labels: names of the classes in the order of their numbers; (): those of the data.
        label_smoothing: share of a target that all classes get alike (Szegedy et al., 2016).
        image_mean, image_std: of each colour, which images are normalised by; (): as the model's
            files say, and 0.5 of a new model.
        resample: the filter by which images are resized, a name of Pillow; "": as the model's files
            say, and bilinear of a new model.
    """

    labels: tuple[str, ...] = ()
    label_smoothing: float = 0.0
    image_mean: tuple[float, ...] = ()
    image_std: tuple[float, ...] = ()
    resample: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        AugmentationOptions.__post_init__(self)
        if self.length:
            rule = "all images of a model have the same number of tokens: set {model.image_size}"
            raise OptionError("data.length", self.length, rule)
        require_between("data.label_smoothing", self.label_smoothing, 0, 1, without_high=True)
        require_one_of("data.resample", self.resample, ("", *FILTERS))
        for name in ("image_mean", "image_std"):
            for value in getattr(self, name):
                is_deviation = name == "image_std"
                require_between(f"data.{name}", value, 0, 1e6, without_low=is_deviation)
            if len(getattr(self, name)) not in (0, 1, 3):
                rule = "give a number for each colour"
                raise OptionError(f"data.{name}", getattr(self, name), rule)

    def processing(self, start: ImageProcessing) -> ImageProcessing:
        """How images become pixels: as the model says that the training starts from, or anew."""
        changes: dict[str, Any] = {
            name: tuple(value)
            for name in ("image_mean", "image_std")
            if (value := getattr(self, name))
        }
        if self.resample:
            changes["resample"] = FILTERS[self.resample]
        return dataclasses.replace(start, **changes)
