"""Images with their classes: from folders, from lists of files, and from prepared data sets.

    FOLDER/CLASS/…/NAME.png     a folder of classes, as torchvision's ImageFolder reads them
    FOLDER/NAME.png             images without classes, to be predicted
    list.jsonl, .tsv, .csv      a path and a label of each image
    list.txt                    a path in each line
    tfds:NAME[:SPLIT]           a data set that TensorFlow Datasets has prepared

An image is decoded when it is needed; those of a data set are kept in memory as they are stored.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bert_jax.data.examples import Example, Examples, ImageFile
from bert_jax.data.images.decoding import check
from bert_jax.data.images.options import ImageFileOptions
from bert_jax.data.readers.columns import USUAL_CLASSES, USUAL_IDS
from bert_jax.data.readers.folders import is_folder
from bert_jax.data.readers.rows import Report, TableCounts
from bert_jax.data.readers.tables import DATASET, Record, is_dataset, open_records, string_field
from bert_jax.data.tensorflow import PreparedDataset
from bert_jax.errors import OptionError, UserError, listed
from bert_jax.files import as_path, is_remote, reachable
from bert_jax.process import say

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")

_USUAL_IMAGES = ("image", "file_name", "file", "path", "image_path", "filename", "text")
# Folders of splits, which are no classes.
_SPLITS = {"train", "validation", "val", "valid", "test"}


def read_images(
    source: str,
    options: ImageFileOptions,
    *,
    needs_labels: bool = False,
    report: Report = TableCounts.say,
) -> Iterator[Example[ImageFile]]:
    """The examples of a source, those of a folder in the order of its names.

    Args:
        source: see the module.
        options: options of the reader.
        needs_labels: whether a missing label is an error.
        report: see `Report`.

    Raises:
        UserError: the source cannot be read, has no images or not all labels, or a file does not
            exist; the message names it.
    """
    with open_images(source, options, report) as examples:
        first: Example[ImageFile] | None = None
        for example in examples:
            first = first or example
            label = example.fields.get(example.label_field) if example.label_field else None
            if label in (None, "") and (needs_labels or first.label_field):
                if first.label_field and example is not first:
                    rule = "give every image one"
                    raise UserError(f"{example.location}: the image has no label; {rule}")
                if needs_labels:
                    raise _no_labels(source, options)
                label = None
            if isinstance(label, list | tuple | dict):
                problem = f"the label is {label!r:.80}, and an image has one class"
                raise UserError(f"{example.location}: {problem}; give a string")
            try:
                check(example.input)
            except UserError as error:
                raise UserError(f"{example.location}: {error}") from error
            yield example.labelled(None if label is None else str(label))


@contextlib.contextmanager
def open_images(
    source: str | Path, options: ImageFileOptions, report: Report = TableCounts.say
) -> Iterator[Examples[ImageFile]]:
    """Opens an input of images to predict; a label is a field like any other.

    Raises:
        UserError: see `read_images`; a row of a list that is malformed, during iteration.
    """
    if is_dataset(source):
        yield _dataset(str(source), options)
    elif str(source) != "-" and is_folder(source):
        yield Examples(_folder(as_path(source)))
    else:
        with open_records(source, options, report, default="text") as table:
            yield table.examples(ImageParser(options, as_path(source).parent))


class ImageParser:
    """Makes examples of the rows of a list, or of objects of a request."""

    def __init__(self, options: ImageFileOptions, folder: Path | None = None) -> None:
        """Takes the folder from which paths count; None: the working directory."""
        self._options, self._folder = options, folder or Path()

    def __call__(self, record: Record, number: int) -> Example[ImageFile]:
        """The example of a record; `number` counts from 0.

        Raises:
            UserError: the record has no path, or the file does not exist.
        """
        fields, options, location = record.fields, self._options, record.location
        column = _chosen(options.image_column, _USUAL_IMAGES, fields, "image", location)
        label = _chosen(options.label_column, USUAL_CLASSES, fields, "label", location, need=False)
        assert column is not None
        name = string_field(fields, column, location).strip()
        path = as_path(name) if is_remote(name) else self._folder / os.path.expanduser(name)
        identity = next((key for key in USUAL_IDS if key in fields), None)
        return Example(
            _image(name, path, location),
            None,
            str(number if identity is None else fields[identity]),
            location,
            {key: value for key, value in fields.items() if key != column},
            label or "",
            fields,
            read=tuple(key for key in (column, label, identity) if key),
        )


def _chosen(
    named: str,
    usual: Sequence[str],
    fields: Iterable[str],
    kind: str,
    location: str,
    *,
    need: bool = True,
) -> str | None:
    """The column that an option names, else the first with a usual name."""
    found = [name for name in ((named,) if named else usual) if name in fields]
    if found or not (named or need):
        return found[0] if found else None
    has = ", ".join(map(repr, fields)) or "nothing"
    problem = (
        f"{location}: there is no column of the {kind}{f' {named!r}' * bool(named)}, only {has}"
    )
    key = f"data.{kind}_column"
    raise OptionError(key, named, f"set {{{key}}}", problem)


def _image(name: str, path: Path, location: str) -> ImageFile:
    """An image file that exists.

    Raises:
        UserError: it does not.
    """
    if is_remote(path):  # to ask a store for each of a million files would take hours
        return ImageFile(name, os.fspath(path))
    try:
        size = path.stat().st_size
    except OSError as error:
        where = "" if location == str(path) else f"{location}: "
        raise UserError(
            f"{where}{path} cannot be read: {error.strerror}; paths count from the folder of the "
            "list"
        ) from error
    return ImageFile(name, os.fspath(path), size=size)


def _folder(folder: Path) -> Iterator[Example[ImageFile]]:
    """The images of a folder: those of its classes, or its own."""
    with reachable(folder):
        entries = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
        classes = [path for path in entries if path.is_dir()]
    if classes and {path.name for path in classes} <= _SPLITS:
        names = ", ".join(path.name for path in classes)
        rule = "set {data.directory} to it, or name one of them"
        problem = f"{folder} has the folders {names}, which are no classes"
        raise OptionError("data.directory", os.fspath(folder), rule, problem)
    others: list[Path] = []

    def images_of(paths: Iterable[Path]) -> list[Path]:
        images: list[Path] = []
        for path in paths:
            if any(part.startswith(".") for part in path.relative_to(folder).parts):
                continue
            if path.suffix.lower() in ENDINGS:
                images.append(path)
            elif not path.is_dir():
                others.append(path)
        return images

    found = [("", path) for path in images_of(entries) if path not in classes]
    if classes and found:
        rule = "move it into the folder of its class"
        raise UserError(f"{found[0][1]} is beside the folders of classes; {rule}")
    for class_folder in classes:
        with reachable(folder):
            images = images_of(sorted(class_folder.rglob("*")))
        if not images:
            rule = f"remove the folder, or put images into it ({listed(ENDINGS, 4)})"
            raise UserError(f"{class_folder} is the folder of a class and has no images; {rule}")
        found += [(class_folder.name, path) for path in images]
    if others:
        say(f"{len(others):,} files that are no images are left out; the first: {others[0]}")
    for number, (label, path) in enumerate(found):
        location, name = os.fspath(path), path.relative_to(folder).as_posix()
        fields, known = ({"label": label}, "label") if label else ({}, "")
        image, record = _image(name, path, location), {"image": name, **fields}
        yield Example(image, None, str(number), location, fields, known, record)


def _dataset(source: str, options: ImageFileOptions) -> Examples[ImageFile]:
    """The examples of a prepared data set, whose images stay encoded."""
    dataset = PreparedDataset(repr(source), source.removeprefix(DATASET), options.data_dir)
    features = dataset.features
    kinds = {name: type(feature).__name__ for name, feature in features.items()}
    images = [name for name, kind in kinds.items() if kind == "Image"]
    classes = [name for name, kind in kinds.items() if kind == "ClassLabel"]
    column = _chosen(options.image_column, images, images, "image", source)
    assert column is not None
    label = _chosen(options.label_column, classes, classes, "label", source, need=False)
    count, reached = dataset.count, 0

    def examples() -> Iterator[Example[ImageFile]]:
        nonlocal reached
        for values in dataset.examples(encoded=(column,)):
            fields: dict[str, Any] = {}
            if label is not None and values[label] >= 0:  # -1: a test example without a label
                fields["label"] = features[label].int2str(int(values[label]))
            image = ImageFile(str(reached), content=bytes(values[column]))
            reached += 1
            location = f"{source} example {reached}"
            known = "label" if fields else ""
            yield Example(image, None, image.name, location, fields, known, fields)

    return Examples(examples(), lambda: reached / count if count else None)


def _no_labels(source: str, options: ImageFileOptions) -> OptionError:
    if not is_dataset(source) and is_folder(source):
        rule = "put the images of each class into a folder with its name"
        problem = f"{source} has images, but no folders of classes"
        return OptionError("data.train", source, rule, problem)
    rule = "name the column of the labels with {data.label_column}"
    problem = f"{source}: the images have no labels"
    return OptionError("data.label_column", options.label_column, rule, problem)
