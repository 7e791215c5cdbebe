"""Images of `tfds:` data sets, prepared here by TensorFlow Datasets itself."""

import numpy as np
import pytest

from bert_jax.data.images.decoding import decode
from bert_jax.data.images.options import ImageFileOptions
from bert_jax.data.images.reading import open_images, read_images
from bert_jax.errors import UserError
from tests.data.readers.test_datasets import prepare
from tests.image_files import drawn

pytestmark = pytest.mark.slow

ROWS = {
    "train": [
        {"image": drawn("light", 5), "label": "light"},
        {"image": drawn("dark", 3), "label": "dark"},
    ],
    "test": [{"image": drawn("dark", 1), "label": -1}],
}


@pytest.fixture(scope="module")
def options(tmp_path_factory):
    import tensorflow_datasets as tfds

    folder = tmp_path_factory.mktemp("tfds")
    columns = {
        "image": tfds.features.Image(shape=(8, 8, 3), encoding_format="png"),
        "label": tfds.features.ClassLabel(names=["dark", "light"]),
    }
    prepare(folder, "shades", columns, ROWS)
    return ImageFileOptions(data_dir=str(folder))


def test_images_and_classes(options):
    examples = list(read_images("tfds:shades", options, needs_labels=True))
    assert [example.label for example in examples] == ["light", "dark"]
    assert examples[1].location == "tfds:shades example 2"
    assert np.array_equal(np.asarray(decode(examples[0].input)), drawn("light", 5))


def test_images_without_labels_are_predicted(options):
    with open_images("tfds:shades:test", options) as examples:
        (example,) = examples
        assert (example.label_field, dict(example.fields)) == ("", {})
        assert examples.estimated_total() == 1


def test_the_feature_of_the_image_must_exist(options):
    other = ImageFileOptions(data_dir=options.data_dir, image_column="photo")
    problem = "tfds:shades: there is no column of the image 'photo', only 'image'; set data.image_"
    with pytest.raises(UserError, match=problem):
        list(read_images("tfds:shades", other))
