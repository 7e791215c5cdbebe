"""The pixels of training images do not depend on what else is computed."""

import numpy as np
import pytest
from PIL import Image

from bert_jax.data.images.augmentation import AugmentationOptions
from bert_jax.data.images.batches import TrainingImages
from bert_jax.data.images.options import ImageFileOptions
from bert_jax.data.images.reading import read_images
from bert_jax.errors import UserError
from bert_jax.tokenization.image_processor import ImageProcessor
from tests.image_files import drawn, write_images


@pytest.fixture
def images(tmp_path):
    folder = write_images(tmp_path / "photos", count=3)
    examples = list(read_images(str(folder), ImageFileOptions()))
    processor = ImageProcessor({"size": 8, "do_normalize": False, "do_rescale": False})

    def make(seed=0, **options):
        augmentation = AugmentationOptions(**options)
        return TrainingImages(examples, processor, (8, 8), augmentation, seed)

    return make


def test_an_image_has_the_same_changes_in_any_batch_of_an_epoch(images):
    made = images()
    whole = made.pixels(np.arange(6), epoch=1)
    assert (whole.shape, whole.dtype) == ((6, 8, 8, 3), np.float32)
    np.testing.assert_array_equal(made.pixels(np.array([4, 2]), epoch=1), whole[[4, 2]])
    np.testing.assert_array_equal(images().pixels(np.array([5]), epoch=1), whole[5:])
    assert not np.array_equal(made.pixels(np.arange(6), epoch=2), whole)
    assert not np.array_equal(images(seed=1).pixels(np.arange(6), epoch=1), whole)


def test_images_without_changes_and_rows_of_padding(images):
    pixels = images().pixels(np.array([1, -1]))
    np.testing.assert_array_equal(pixels[0], drawn("dark", 1))
    assert not pixels[1].any()


def test_a_file_that_was_damaged_meanwhile_is_named(images, tmp_path):
    made = images()
    file = tmp_path / "photos" / "dark" / "1.png"
    file.write_bytes(b"")
    with pytest.raises(UserError) as caught:
        made.pixels(np.array([1]), epoch=0)
    assert str(caught.value) == f"{file}: it is no image that Pillow can read; replace or remove it"


def test_a_file_with_damaged_exif_data_is_named(images, tmp_path):
    made = images()
    file, exif = tmp_path / "photos" / "dark" / "1.png", b"Exif\0\0XX*\0\x08\0\0\0"
    Image.fromarray(drawn("dark", 1)).save(file, "PNG", exif=exif)
    for epoch in (None, 0):
        with pytest.raises(UserError, match="^.*dark/1.png: the EXIF data of the image cannot be"):
            made.pixels(np.array([1]), epoch)
