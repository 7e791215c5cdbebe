"""`preprocessor_config.json`, and the pixels that it describes."""

import json
import struct

import numpy as np
import pytest
from PIL import Image

from bert_jax.errors import OptionError, UserError
from bert_jax.tokenization.image_processing import ImageProcessing, in_colours
from bert_jax.tokenization.image_processor import read_image_processor

# As google/vit-base-patch16-224 has it, with one number for both sides.
OLD_FILE = {
    "do_normalize": True,
    "do_resize": True,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
    "size": 224,
}
PLAIN = {"do_rescale": False, "do_normalize": False}


def grey(values) -> Image.Image:
    return Image.fromarray(np.array(values, np.uint8))


def test_colours_are_scaled_and_normalised():
    image = Image.new("RGB", (2, 2), (0, 51, 255))
    fields = {"size": 2, "image_mean": [0.5, 0.2, 0.0], "image_std": [0.5, 0.5, 2.0]}
    pixels = ImageProcessing.from_fields(fields).pixels(image)
    assert (pixels.shape, pixels.dtype) == ((2, 2, 3), np.float32)
    np.testing.assert_allclose(pixels[1, 1], [-1, 0, 0.5], atol=1e-7)
    assert ImageProcessing.from_fields(fields).colours(pixels)[1, 1].tolist() == [0, 51, 255]


@pytest.mark.parametrize(
    ("crop", "expected"),
    [
        ((1, 1), [[4]]),
        ((1, 2), [[3, 4]]),  # of an odd column more, the left one stays
        ((3, 5), [[0, 0, 1, 2, 0], [0, 3, 4, 5, 0], [0, 6, 7, 8, 0]]),
    ],
)
def test_the_middle_is_cut_out(crop, expected):
    height, width = crop
    fields = {
        **PLAIN,
        "do_resize": False,
        "do_center_crop": True,
        "crop_size": {"height": height, "width": width},
    }
    pixels = ImageProcessing.from_fields(fields).pixels(grey(np.arange(9).reshape(3, 3)), 1)
    assert pixels[..., 0].tolist() == expected


def test_the_shorter_side_is_resized():
    fields = {**PLAIN, "size": {"shortest_edge": 4}}
    processing = ImageProcessing.from_fields(fields)
    assert processing.pixels(Image.new("RGB", (21, 8))).shape == (4, 10, 3)
    assert processing.pixels(Image.new("RGB", (8, 21))).shape == (10, 4, 3)
    assert processing.output_size is None


def test_a_photo_is_turned_as_its_camera_says_and_made_grey():
    image, exif = Image.new("RGB", (4, 2), (255, 0, 0)), Image.Exif()
    exif[0x0112] = 6  # turn by 90°
    image.info["exif"] = exif.tobytes()
    fields = {**PLAIN, "do_resize": False}
    pixels = ImageProcessing.from_fields(fields).pixels(image, 1)
    assert pixels.shape == (4, 2, 1)
    assert pixels[0, 0, 0] == 76  # 0.299 of 255


def test_damaged_exif_data_are_an_error_of_the_image():
    # Orientation 6, and a unit of the resolution that is a text.
    tags = struct.pack(">HHI2H HHI4s", 0x112, 3, 1, 6, 0, 0x128, 2, 2, b"ab")
    damaged = {
        b"Exif\0\0XX*\0\x08\0\0\0": "not a TIFF file",
        b"Exif\0\0MM\0*\0\0\0\x08\0\2" + tags + bytes(4): "required argument is not an integer",
    }
    for content, problem in damaged.items():
        image = Image.new("RGB", (4, 2))
        image.info["exif"] = content
        with pytest.raises(UserError, match=f"^the EXIF data of the image .*{problem}.*; save it"):
            in_colours(image, 3)


def test_files_are_written_as_they_were_read(tmp_path):
    file = tmp_path / "preprocessor_config.json"
    file.write_text(json.dumps(OLD_FILE))
    processor = read_image_processor(tmp_path)
    assert processor.size == (224, 224)
    processor.save(tmp_path / "copy")
    assert (tmp_path / "copy" / file.name).read_bytes() == file.read_bytes()


def test_a_directory_without_the_file_has_the_size_of_its_model(tmp_path):
    (tmp_path / "config.json").write_text('{"image_size": 8, "num_channels": 1}')
    processor = read_image_processor(tmp_path)
    assert (processor.size, processor.channels) == ((8, 8), 1)
    processor.save(tmp_path / "copy")
    assert [*(tmp_path / "copy").iterdir()] == []


def test_another_size_keeps_the_share_that_is_cropped():
    fields = {"image_processor_type": "DeiTImageProcessor"}
    larger = ImageProcessing.from_fields(fields).with_size(448, 448)
    assert (larger.size, larger.crop_size, larger.resample) == ((512, 512), (448, 448), 3)
    written = larger.fields
    assert written["size"] == {"height": 512, "width": 512}
    assert written["image_processor_type"] == "DeiTImageProcessor"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"resample": 7}, "resample is 7; it must be one of 0 (nearest), 1 (lanczos)"),
        ({"size": {"longest_edge": 5}}, "size is {'longest_edge': 5}; give height and width"),
        ({"size": 0}, "size is 0; give height and width as whole numbers above 0"),
        ({"do_pad": True}, "do_pad is True; this step is not computed: give another model"),
        ({"image_std": [1, 0, 1]}, "image_std is [1.0, 0.0, 1.0]; no value may be 0"),
        ({"image_mean": ["a"]}, "image_mean is ['a']; give a number for each colour"),
        ({"do_center_crop": True}, "crop_size is None; give it, or set do_center_crop to false"),
        (
            {"image_processor_type": "BeitImageProcessor"},
            "image_processor_type is 'BeitImageProcessor'; known are ViTImageProcessor",
        ),
    ],
)
def test_steps_that_are_not_computed_are_refused(tmp_path, fields, message):
    file = tmp_path / "preprocessor_config.json"
    file.write_text(json.dumps(fields))
    with pytest.raises(OptionError) as caught:
        assert read_image_processor(tmp_path).processing
    assert str(caught.value).startswith(f"{file}: {message}")


def test_texts_are_refused(tmp_path):
    processor = read_image_processor(tmp_path)
    with pytest.raises(UserError, match="the model reads images and has no tokenizer; give images"):
        processor.encode_batch(["a text"])
