"""Image files → images of Pillow."""

import io
from typing import TYPE_CHECKING

from bert_jax.data.examples import ImageFile
from bert_jax.errors import UserError, first_line
from bert_jax.files import as_path, is_remote, reachable

if TYPE_CHECKING:
    from PIL.Image import Image


def check(image: ImageFile) -> None:
    """Reads the beginning of a file on this machine: its format, and the size of its image.

    Raises:
        UserError: it is no image; the message has no location.
    """
    if not is_remote(image.path):
        decode(image, is_whole=False)


def decode(image: ImageFile, *, is_whole: bool = True) -> "Image":
    """The image of a file, decoded if `is_whole`; of several in a file, the first.

    Raises:
        UserError: it cannot be read; the message has no location.
    """
    import PIL.Image

    try:
        if image.content:
            source: io.BytesIO | str = io.BytesIO(image.content)
        elif is_whole:
            with reachable(path := as_path(image.path)):
                source = io.BytesIO(path.read_bytes())
        else:
            source = image.path
        opened = PIL.Image.open(source)
        if is_whole:
            opened.load()
        else:
            opened.close()
        return opened
    except PIL.UnidentifiedImageError as error:
        problem = "it is no image that Pillow can read"
        raise UserError(f"{problem}; replace or remove it") from error
    # Damaged files raise these, by their format.
    except (OSError, SyntaxError, ValueError, PIL.Image.DecompressionBombError) as error:
        problem = f"the image cannot be read: {first_line(error)}"
        raise UserError(f"{problem}; replace or remove it") from error
