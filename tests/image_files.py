"""Small images in folders of classes, which tests draw."""

import io
from pathlib import Path

import numpy as np
from PIL import Image

SIZE = 8


def drawn(label: str, number: int) -> np.ndarray:
    """An image: "dark" or "light", with the number as its first pixel; uint8 [8, 8, 3]."""
    values = np.full((SIZE, SIZE, 3), 40 if label == "dark" else 200, np.uint8)
    values[0, 0] = number
    values[:, number % SIZE, 0] += 30
    return values


def encoded(values: np.ndarray, form: str = "PNG") -> bytes:
    """The content of an image file."""
    file = io.BytesIO()
    Image.fromarray(values).save(file, form)
    return file.getvalue()


def write_images(folder: Path, count: int = 6, splits: tuple[str, ...] = ()) -> Path:
    """Writes FOLDER[/SPLIT]/CLASS/NUMBER.png, of the classes dark and light; returns the folder."""
    for split in splits or ("",):
        for label in ("dark", "light"):
            (folder / split / label).mkdir(parents=True)
            for number in range(count):
                path = folder / split / label / f"{number}.png"
                path.write_bytes(encoded(drawn(label, number)))
    return folder
