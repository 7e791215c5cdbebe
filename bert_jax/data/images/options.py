"""How images are read; keys of the same names in section `data`."""

import dataclasses
from typing import ClassVar

from bert_jax.data.readers.tables import FORMATS, FileOptions


@dataclasses.dataclass(frozen=True)
class ImageFileOptions(FileOptions):
    """How a folder, a list of image files or a data set is read.

    Attributes:
        format: format of a list of files, see `FileOptions`; "text" is one path per line.
        image_column: column of the path of an image, which counts from the folder of the list; or
            the feature of a data set; "": a usual name.
        label_column: column of the label; "": a usual name.
    """

    FORMATS: ClassVar[tuple[str, ...]] = tuple(name for name in FORMATS if name != "label_text")

    image_column: str = ""
    label_column: str = ""
