"""Images of folders, of lists of files and of prepared data sets."""

import numpy as np
import pytest

from bert_jax.data.examples import content_of
from bert_jax.data.images.decoding import decode
from bert_jax.data.images.options import ImageFileOptions
from bert_jax.data.images.reading import open_images, read_images
from bert_jax.errors import UserError
from tests.image_files import drawn, encoded, write_images

DEFAULTS = ImageFileOptions()


def labelled(source, options=DEFAULTS):
    return [
        (example.input.name, example.label)
        for example in read_images(str(source), options, needs_labels=True)
    ]


def test_a_folder_has_a_folder_for_each_class(tmp_path, capsys):
    folder = write_images(tmp_path / "photos", count=2)
    (folder / "dark" / "more").mkdir()
    (folder / "dark" / "more" / "2.JPG").write_bytes(encoded(drawn("dark", 2), "JPEG"))
    (folder / "dark" / "notes.txt").write_text("seen in May")
    (folder / "dark" / "README").write_text("seen in May")
    for hidden in (folder / ".cache", folder / "dark" / ".cache"):
        hidden.mkdir()
        (hidden / "0.png").write_bytes(encoded(drawn("dark", 0)))
    assert labelled(folder) == [
        ("dark/0.png", "dark"),
        ("dark/1.png", "dark"),
        ("dark/more/2.JPG", "dark"),
        ("light/0.png", "light"),
        ("light/1.png", "light"),
    ]
    said = f"2 files that are no images are left out; the first: {folder}/dark/README"
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("list.jsonl", '{"file": "dark/0.png", "kind": "d"}\n{"file": "light/1.png", "kind": "l"}'),
        ("list.csv", "file,kind\ndark/0.png,d\nlight/1.png,l\n"),
    ],
)
def test_a_list_names_files_beside_it_and_their_labels(tmp_path, name, text):
    folder = write_images(tmp_path)
    (folder / name).write_text(text)
    options = ImageFileOptions(label_column="kind")
    assert labelled(folder / name, options) == [("dark/0.png", "d"), ("light/1.png", "l")]
    first = next(iter(read_images(str(folder / name), options)))
    assert np.array_equal(np.asarray(decode(first.input)), drawn("dark", 0))


def test_images_without_classes_are_predicted(tmp_path):
    folder = write_images(tmp_path, count=2) / "dark"
    with open_images(folder, DEFAULTS) as examples:
        assert [(example.id, dict(example.record)) for example in examples] == [
            ("0", {"image": "0.png"}),
            ("1", {"image": "1.png"}),
        ]
    (tmp_path / "list.txt").write_text("dark/1.png\nlight/0.png\n")
    with open_images(tmp_path / "list.txt", DEFAULTS) as examples:
        assert [example.input.name for example in examples] == ["dark/1.png", "light/0.png"]


def test_the_content_of_an_image_is_its_name_and_size(tmp_path):
    folder = write_images(tmp_path, count=1)
    before = [*map(content_of, read_images(str(folder), DEFAULTS))]
    (folder / "dark" / "0.png").write_bytes(encoded(drawn("dark", 0)) + b"\0")
    after = [*map(content_of, read_images(str(folder), DEFAULTS))]
    assert [one == other for one, other in zip(before, after, strict=True)] == [False, True]


def no_image(folder):
    (folder / "dark" / "0.png").write_text("hello")
    return folder, f"{folder}/dark/0.png: it is no image that Pillow can read; replace or remove it"


def empty_file(folder):
    (folder / "dark" / "0.png").write_bytes(b"")
    return folder, f"{folder}/dark/0.png: it is no image that Pillow can read; replace or remove it"


def empty_class(folder):
    (folder / "empty").mkdir()
    return folder, f"{folder}/empty is the folder of a class and has no images; remove the folder"


def beside_classes(folder):
    (folder / "0.png").write_bytes(encoded(drawn("dark", 0)))
    return folder, f"{folder}/0.png is beside the folders of classes; move it into the folder"


def no_classes(folder):
    return folder / "dark", f"{folder}/dark has images, but no folders of classes; put the images"


def splits(folder):
    whole = write_images(folder / "whole", splits=("train", "validation"))
    return whole, f"{whole} has the folders train, validation, which are no classes; set data.dir"


def no_file(folder):
    (folder / "list.csv").write_text("image,label\nnone.png,x\n")
    problem = f"{folder}/list.csv:2: {folder}/none.png cannot be read: No such file or directory"
    return folder / "list.csv", problem


def no_label(folder):
    (folder / "list.jsonl").write_text(
        '{"image": "dark/0.png", "label": "x"}\n{"image": "dark/1.png", "label": ""}\n'
    )
    return folder / "list.jsonl", f"{folder}/list.jsonl:2: the image has no label; give every image"


def several_labels(folder):
    (folder / "list.jsonl").write_text('{"image": "dark/0.png", "label": ["x", "y"]}\n')
    problem = "the label is ['x', 'y'], and an image has one class; give a string"
    return folder / "list.jsonl", f"{folder}/list.jsonl:1: {problem}"


def no_column(folder):
    (folder / "list.csv").write_text("photo,label\n0.png,x\n")
    problem = "there is no column of the image, only 'photo', 'label'; set data.image_column"
    return folder / "list.csv", f"{folder}/list.csv:2: {problem}"


@pytest.mark.parametrize(
    "damage",
    [
        *(no_image, empty_file, empty_class, beside_classes, no_classes, splits),
        *(no_file, no_label, several_labels, no_column),
    ],
    ids=lambda damage: damage.__name__,
)
def test_errors_name_the_file_and_the_remedy(tmp_path, damage):
    source, message = damage(write_images(tmp_path / "images", count=2))
    with pytest.raises(UserError) as caught:
        labelled(source)
    assert str(caught.value).startswith(message)


def test_a_file_that_is_cut_off_is_found_when_it_is_decoded(tmp_path):
    folder = write_images(tmp_path, count=1)
    file = folder / "dark" / "0.png"
    file.write_bytes(file.read_bytes()[:60])
    example = next(iter(read_images(str(folder), DEFAULTS)))
    with pytest.raises(UserError, match="^the image cannot be read: .*; replace or remove it$"):
        decode(example.input)
