"""Labelled `tfds:` data sets, prepared here by TensorFlow Datasets itself."""

import pathlib

import pytest

from bert_jax.data.examples import Choices
from bert_jax.data.readers.choices import ChoiceOptions, read_choices
from bert_jax.data.readers.columns import TextOptions
from bert_jax.data.readers.parallel import ParallelOptions, read_parallel
from bert_jax.data.readers.tables import FileOptions, open_records
from bert_jax.data.readers.texts import read_texts
from bert_jax.errors import UserError

pytestmark = pytest.mark.slow


PAIRS = {
    "train": [
        {"sentence1": "Thrée.", "sentence2": "b", "label": 1, "idx": 7},
        {"sentence1": "c", "sentence2": "d", "label": 0, "idx": 8},
    ],
    "test": [{"sentence1": "e", "sentence2": "f", "label": -1, "idx": 0}],
    "latin": [{"sentence1": b"\xe9", "sentence2": "f", "label": 0, "idx": 0}],
}
OPTIONS = [{"text": "x", "label": "A"}, {"text": "y", "label": "B"}]
CHOICES = {"train": [{"id": "q1", "question": "Who?", "choices": OPTIONS, "answerKey": "B"}]}
LABELS = {"train": [{"text": "a", "labels": ["anger", "joy"]}, {"text": "b", "labels": []}]}
TRANSLATIONS = {"train": [{"de": "Drei Katzen.", "en": "Three cats."}]}
SCORES = {"train": [{"text": "a", "score": 2.5}]}


def prepare(folder, dataset, columns, rows, **options):
    import tensorflow_datasets as tfds

    class Tiny(tfds.core.GeneratorBasedBuilder, skip_registration=True):
        """A data set of a few rows."""

        name = dataset
        pkg_dir_path = pathlib.Path(__file__).parent
        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            features = columns
            if isinstance(columns, dict):
                features = tfds.features.FeaturesDict(columns)
            return self.dataset_info_from_configs(features=features, disable_shuffling=True)

        def _split_generators(self, _):
            return {split: self._generate_examples(split) for split in rows}

        def _generate_examples(self, split):
            yield from enumerate(rows[split])

    Tiny(data_dir=folder, **options).download_and_prepare()


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    import numpy as np
    from tensorflow_datasets import features

    folder, text = tmp_path_factory.mktemp("tfds"), features.Text()
    answer = features.ClassLabel(names=["yes", "no"])
    pair = {"sentence1": text, "sentence2": text, "label": answer, "idx": np.int32}
    prepare(folder, "tiny_pairs", pair, PAIRS)
    prepare(folder, "tiny_translation", features.Translation(("de", "en")), TRANSLATIONS)
    prepare(folder, "tiny_scores", {"text": text, "score": np.float32}, SCORES)
    emotions = features.Sequence(features.ClassLabel(names=["joy", "anger"]))
    prepare(folder, "tiny_labels", {"text": text, "labels": emotions}, LABELS)
    letter = features.ClassLabel(names=["A", "B", "C"])
    options = features.Sequence({"text": text, "label": letter})
    columns = {"id": text, "question": text, "choices": options, "answerKey": letter}
    prepare(folder, "tiny_choices", columns, CHOICES)
    prepare(folder / "a", "tiny_choices", columns, CHOICES, file_format="array_record")
    return folder


def texts(data_dir, name, regression=False, **options):
    options = TextOptions(data_dir=str(data_dir), **options)
    return list(read_texts(f"tfds:{name}", options, regression=regression))


def test_both_sides_of_a_translation(data_dir):
    options = ParallelOptions(data_dir=str(data_dir), source_language="en", target_language="de")
    (example,) = read_parallel("tfds:tiny_translation", options, needs_targets=True)
    assert (example.input, example.label, example.id) == ("Three cats.", ("Drei Katzen.",), "0")
    assert example.location == "tfds:tiny_translation example 1"


def test_pairs_with_the_names_of_their_classes(data_dir):
    rows = texts(data_dir, "tiny_pairs")
    assert [(row.input, row.label, row.id) for row in rows] == [
        (("Thrée.", "b"), "no", "7"),
        (("c", "d"), "yes", "8"),
    ]
    assert rows[1].location == "tfds:tiny_pairs example 2"
    assert [row.label for row in texts(data_dir, "tiny_pairs:test")] == [None]
    assert [row.id for row in texts(data_dir, "tiny_pairs:1.0.0:train[1:]")] == ["8"]
    single = texts(data_dir, "tiny_pairs", text_column="sentence2")
    assert [row.input for row in single] == ["b", "d"]


def test_numbers_and_lists_of_labels(data_dir):
    assert [row.label for row in texts(data_dir, "tiny_scores", regression=True)] == [2.5]
    assert [row.label for row in texts(data_dir, "tiny_labels")] == [("anger", "joy"), ()]


@pytest.mark.parametrize("folder", ["", "a"])
def test_choices(data_dir, folder):
    options = ChoiceOptions(data_dir=str(data_dir / folder))
    (row,) = read_choices("tfds:tiny_choices", options)
    assert (row.input, row.label, row.id) == (Choices("Who?", ("x", "y")), 1, "q1")


def test_the_fraction_that_is_read(data_dir):
    options = FileOptions(data_dir=str(data_dir))
    with open_records("tfds:tiny_pairs", options) as table:
        assert table.columns == ("idx", "label", "sentence1", "sentence2")
        assert [table.fraction() for _ in table.records] == [0.5, 1.0]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("none", {}, "^'tfds:none': TensorFlow Datasets has prepared no such data set in .*tiny_p"),
        (
            "tiny_pairs:dev",
            {},
            "^'tfds:tiny_pairs:dev' has no split 'dev'; known: latin, test, tra",
        ),
        ("tiny_pairs:latin", {}, r"latin example 1: byte 1 of a text \(0xe9\) is not UTF-8"),
        ("tiny_pairs", {"text_column": "x"}, "tfds:tiny_pairs: there is no column 'x', only 'idx'"),
        ("", {}, "^'tfds:' is not of the form tfds:NAME"),
    ],
)
def test_errors(data_dir, name, options, message):
    with pytest.raises(UserError, match=message):
        texts(data_dir, name, **options)
