"""`tfds:` data sets, prepared here by TensorFlow Datasets itself."""

import pathlib

import pytest

from bert_jax.data.pretraining.sources import Block, SourceSpec, open_source
from bert_jax.errors import UserError

DOCUMENTS = ["One. Two.", "Thrée.\n\nFour.", "Five."]


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    import numpy as np
    import tensorflow_datasets as tfds

    class TinyText(tfds.core.GeneratorBasedBuilder):
        """Three documents."""

        pkg_dir_path = pathlib.Path(__file__).parent
        VERSION = tfds.core.Version("1.10.0")
        encoding = "utf-8"

        def _info(self):
            features = tfds.features.FeaturesDict(
                {
                    "text": tfds.features.Text(),
                    "number": np.int32,
                    "parts": tfds.features.Sequence(tfds.features.Text()),
                }
            )
            return self.dataset_info_from_configs(features=features, disable_shuffling=True)

        def _split_generators(self, _):
            return {
                "train": self._generate_examples(DOCUMENTS),
                "test": self._generate_examples(["Six."]),
            }

        def _generate_examples(self, documents):
            for number, text in enumerate(documents):
                data = text.encode(self.encoding)
                yield number, {"text": data, "number": number, "parts": text.split(".")}

    class OlderText(TinyText, skip_registration=True):
        """An earlier version: the same name, other text."""

        name = "tiny_text"
        VERSION = tfds.core.Version("1.9.0")

        def _split_generators(self, _):
            return {"train": self._generate_examples(["Old."])}

    class LatinText(TinyText):
        """Bytes that are not UTF-8."""

        encoding = "latin-1"

    folder = tmp_path_factory.mktemp("tfds")
    for builder in (TinyText, OlderText, LatinText):
        builder(data_dir=folder).download_and_prepare()
    TinyText(data_dir=folder / "a", file_format="array_record").download_and_prepare()
    return folder


def blocks(data_dir, name, **options):
    source = open_source(SourceSpec(f"tfds:{name}", data_dir=str(data_dir), **options))
    documents = list(source.blocks())
    assert source.position == source.size
    return documents


ALL = [Block(True, "One. Two."), Block(True, "Thrée.\nFour."), Block(True, "Five.")]


@pytest.mark.slow
def test_documents_of_versions_splits_files_and_fields(data_dir):
    assert blocks(data_dir, "tiny_text") == ALL
    assert blocks(data_dir, "tiny_text:test") == [Block(True, "Six.")]
    assert blocks(data_dir, "tiny_text:1.9.0") == [Block(True, "Old.")]
    assert blocks(data_dir, "tiny_text:1.10.0:train[1:]") == ALL[1:]
    assert blocks(data_dir / "a", "tiny_text") == ALL  # array records
    # A list of texts is a paragraph each.
    assert blocks(data_dir, "tiny_text", field="parts")[0] == Block(True, "One\nTwo")


@pytest.mark.slow
def test_what_is_not_there_is_named(data_dir):
    for name, options, message in [
        ("no_text", {}, "prepared no such data set in .*; it has .*tiny_text/1.9.0"),
        ("tiny_text:1.8.0", {}, "prepared no such data set"),
        ("tiny_text:validation", {}, "no split 'validation'; known: test, train"),
        ("tiny_text", {"field": "body"}, "no field 'body'; its fields are 'number', 'parts'"),
        ("tiny_text", {"field": "number"}, "field 'number' holds no text"),
        ("latin_text", {}, "tfds:latin_text example:2: byte 4 .* is not UTF-8"),
        (":train", {}, "is not of the form tfds:NAME"),
    ]:
        with pytest.raises(UserError, match=message):
            blocks(data_dir, name, **options)
    assert blocks(data_dir, "latin_text", errors="replace")[1].text == "Thr\ufffde.\nFour."


@pytest.mark.slow
def test_a_damaged_file_is_said_to_be_damaged(data_dir, tmp_path):
    whole = data_dir / "tiny_text" / "1.10.0"
    copy = tmp_path / "tiny_text" / "1.10.0"
    copy.mkdir(parents=True)
    for path in whole.iterdir():
        data = path.read_bytes()
        if "train" in path.name:
            data = data.replace(b"Five", b"Fife")
        (copy / path.name).write_bytes(data)
    with pytest.raises(UserError, match="damaged files in"):
        blocks(tmp_path, "tiny_text")
