"""Random changes of images: each is a function of its key."""

import dataclasses

import numpy as np
import pytest
from PIL import Image

from bert_jax.data.images.augmentation import AugmentationOptions, augmented, random_part
from bert_jax.data.randomness import derive_key
from bert_jax.errors import OptionError
from tests.image_files import drawn

WHOLE = AugmentationOptions(crop_scale=(1.0, 1.0), flip=0.0)
IMAGE = Image.fromarray(drawn("dark", 3))
BILINEAR = 2


def changed(options, *parts):
    return np.asarray(augmented(IMAGE, derive_key(*parts), options, (8, 8), BILINEAR))


def test_nothing_is_changed_without_options():
    assert np.array_equal(changed(WHOLE, 0), drawn("dark", 3))


def test_left_and_right_are_exchanged_with_a_probability():
    always = dataclasses.replace(WHOLE, flip=1.0)
    assert np.array_equal(changed(always, 0), drawn("dark", 3)[:, ::-1])
    half = dataclasses.replace(WHOLE, flip=0.5)
    flips = [not np.array_equal(changed(half, n), drawn("dark", 3)) for n in range(400)]
    assert 160 < sum(flips) < 240  # within four deviations of 200


def test_a_random_part_has_the_share_and_the_ratio():
    options = AugmentationOptions(crop_scale=(0.2, 0.6), crop_ratio=(0.5, 2.0))
    parts = [random_part((300, 500), derive_key(0, n), options) for n in range(500)]
    shares, ratios, middles = [], [], []
    for left, top, right, bottom in parts:
        assert 0 <= left < right <= 500
        assert 0 <= top < bottom <= 300
        shares.append((right - left) * (bottom - top) / (300 * 500))
        ratios.append((right - left) / (bottom - top))
        middles.append((left + right) / 2 / 500)
    assert 0.19 < min(shares) < 0.23
    assert 0.57 < max(shares) < 0.61
    assert 0.49 < min(ratios) < 0.55
    assert 1.8 < max(ratios) < 2.02
    assert abs(np.mean(middles) - 0.5) < 0.03
    assert len({*parts}) > 490


def test_an_image_in_which_no_try_fits_gives_its_middle():
    options = AugmentationOptions(crop_scale=(1.0, 1.0), crop_ratio=(1.0, 1.0))
    assert random_part((10, 30), derive_key(0), options) == (10, 0, 20, 10)


def test_a_change_depends_on_its_key_alone():
    options = AugmentationOptions()
    assert np.array_equal(changed(options, 1, 2, 3), changed(options, 1, 2, 3))
    others = [changed(options, *key) for key in ((1, 2, 4), (1, 3, 3), (2, 2, 3))]
    assert not any(np.array_equal(changed(options, 1, 2, 3), other) for other in others)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"crop_scale": (0.5, 0.2)}, "data.crop_scale is (0.5, 0.2); give the least and the great"),
        ({"crop_scale": (0.5,)}, "data.crop_scale is (0.5,); give the least and the greatest"),
        ({"crop_scale": (0.0, 1.0)}, "data.crop_scale is 0.0; it must be above 0"),
        ({"flip": 1.5}, "data.flip is 1.5; it must be"),
        ({"randaugment_ops": -1}, "data.randaugment_ops is -1; it must be at least 0"),
    ],
)
def test_options_have_ranges(options, message):
    with pytest.raises(OptionError) as caught:
        AugmentationOptions(**options)
    assert str(caught.value).startswith(message)


@pytest.mark.slow
def test_randaugment_depends_on_the_key_alone_and_on_its_strength():
    options = dataclasses.replace(WHOLE, randaugment_ops=2, randaugment_factor=0.5)
    first = [changed(options, 0, n) for n in range(6)]
    again = [changed(options, 0, n) for n in reversed(range(6))][::-1]
    assert all(map(np.array_equal, first, again))
    assert len({each.tobytes() for each in first}) > 3
    assert first[0].dtype == np.uint8
