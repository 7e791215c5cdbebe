"""The files of a task: trained on, validation, predicted."""

import pytest

from bert_jax.errors import UserError
from bert_jax.tasks.base.labelled_options import LabelledData
from bert_jax.tasks.base.splits import read_splits


def lines(source, split, report):
    with open(source) as file:
        return [f"{split}:{line.strip()}" for line in file]


def splits(tmp_path, *, with_train=True, default_names=None, **keys):
    data = LabelledData(**{"directory": str(tmp_path), **keys})
    return read_splits(data, lines, with_train=with_train, default_names=default_names)


@pytest.fixture
def files(tmp_path):
    for name, count in (("train.txt", 20), ("dev.txt", 3), ("dev2.txt", 2), ("test.txt", 4)):
        (tmp_path / name).write_text("".join(f"{name}-{row}\n" for row in range(count)))
    (tmp_path / "empty.txt").write_text("")
    return tmp_path


def test_files_are_read_as_their_splits(files):
    read = splits(files, train="train.txt", validation=("dev.txt",), test=("test.txt",))
    assert len(read.train) == 20
    assert read.train[0] == "train:train.txt-0"
    assert [(part.name, len(part.examples)) for part in read.validation] == [("validation", 3)]
    assert [(part.name, len(part.examples)) for part in read.test] == [("test", 4)]
    # Several files have their names; a limit draws from the whole file.
    read = splits(files, train="train.txt", validation=("dev.txt", "dev2.txt"), limit=5)
    assert [part.name for part in read.validation] == ["dev", "dev2"]
    assert len(read.train) == 5
    assert read.train != [f"train:train.txt-{row}" for row in range(5)]
    names = {"train": ("train.txt",), "validation": ("dev.txt", "dev2.txt"), "test": ("no.txt",)}
    read = splits(files, default_names=names)
    assert [part.name for part in read.validation] == ["dev", "dev2"]
    assert read.test == []


def test_a_split_may_be_a_folder(files):
    (files / "beir").mkdir()
    data = LabelledData(directory=str(files), validation=("beir",))
    read = read_splits(data, lambda source, split, report: [source], with_train=False)
    assert [part.examples for part in read.validation] == [[str(files / "beir")]]


def test_the_validation_share_is_always_the_same(files):
    keys = {"train": "train.txt", "validation_fraction": 0.25}
    read = splits(files, **keys)
    (part,) = read.validation
    assert (len(part.examples), len(read.train)) == (5, 15)
    assert not set(part.examples) & set(read.train)
    assert splits(files, **keys) == read
    # A finished model is evaluated on exactly the same examples.
    evaluated = splits(files, **keys, with_train=False)
    assert (evaluated.train, evaluated.validation) == ([], [part])


def test_a_finished_model_needs_no_file_to_train_on(files):
    names = {"train": ("gone.txt",), "validation": ("dev.txt",)}
    for keys in ({"train": "gone.txt", "validation": ("dev.txt",)}, {"default_names": names}):
        read = splits(files, **keys, with_train=False)
        assert len(read.validation[0].examples) == 3
        with pytest.raises(UserError, match=r"gone.txt"):
            splits(files, **keys)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({}, "data.train is ''; give a file of examples"),
        ({"train": "no.txt"}, "no.txt does not exist; give another file as data.train"),
        ({"train": "empty.txt"}, "empty.txt: no examples"),
        ({"train": "train.txt", "validation_fraction": 0.0}, "data.validation_fraction is 0.0; wi"),
        (
            {"train": "train.txt", "validation_fraction": 0.001},
            "no file is given for validation, and 0.001 of 20 examples rounds to 0; set another d",
        ),
        ({"train": "train.txt", "validation": ("empty.txt",)}, "empty.txt: no examples"),
        ({"train": "train.txt", "validation": ("dev.txt", "dev.txt")}, "have the same name"),
    ],
)
def test_missing_files_and_examples(files, keys, message):
    with pytest.raises(UserError, match=message):
        splits(files, **keys)
