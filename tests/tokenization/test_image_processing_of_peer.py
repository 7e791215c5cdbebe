"""The pixels and the files of transformers' image processors."""

import numpy as np
import pytest
from PIL import Image
from transformers.models.deit.image_processing_pil_deit import DeiTImageProcessorPil
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

from bert_jax.tokenization.image_processor import ImageProcessor, read_image_processor

pytestmark = pytest.mark.slow

PROCESSORS = {
    "ViT": ViTImageProcessorPil(),
    "DeiT": DeiTImageProcessorPil(),
    "an oblong": ViTImageProcessorPil(
        size={"height": 30, "width": 17}, resample=3, image_mean=[0.1, 0.2, 0.3]
    ),
    "the shorter side, and zeros around": DeiTImageProcessorPil(
        size={"shortest_edge": 31}, crop_size={"height": 40, "width": 25}, resample=1
    ),
    "neither scale nor mean": ViTImageProcessorPil(
        do_rescale=False, do_normalize=False, resample=0
    ),
}


@pytest.mark.parametrize("peer", PROCESSORS.values(), ids=PROCESSORS)
@pytest.mark.parametrize("shape", [(50, 41), (13, 77), (301, 200)])
def test_pixels_are_the_same(tmp_path, peer, shape):
    values = np.random.default_rng(0).integers(0, 256, (*shape, 3)).astype(np.uint8)
    image = Image.fromarray(values)
    peer.save_pretrained(tmp_path)
    expected = peer(image, return_tensors="np")["pixel_values"][0].transpose(1, 2, 0)
    pixels = read_image_processor(tmp_path).processing.pixels(image)
    assert (pixels.shape, pixels.dtype) == (expected.shape, np.float32)
    np.testing.assert_array_equal(pixels, expected)


@pytest.mark.parametrize("peer", PROCESSORS.values(), ids=PROCESSORS)
def test_the_file_is_written_as_transformers_writes_it(tmp_path, peer):
    peer.save_pretrained(tmp_path)
    file = tmp_path / "preprocessor_config.json"
    processing = read_image_processor(tmp_path).processing
    ImageProcessor(processing.fields).save(tmp_path / "again")
    assert (tmp_path / "again" / file.name).read_bytes() == file.read_bytes()
