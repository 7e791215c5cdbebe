"""The dry run's figures, computed by hand."""

import tempfile

import pytest

from bert_jax.data.pretraining.preparation.prepare import PrepareOptions
from bert_jax.data.pretraining.preparation.statistics import statistics
from bert_jax.data.pretraining.sources import source_specs
from bert_jax.errors import UserError


def test_the_figures_of_three_documents(tmp_path, tiny_vocabulary, monkeypatch):
    (tmp_path / "a.txt").write_text("cat dog\ncat zebra ran\n\ncat\n\n" + "dog\n" * 9)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    options = PrepareOptions(
        source_specs(f"text:{tmp_path}/a.txt"),
        tokenizer=str(tiny_vocabulary),
        validation_fraction=1e-9,
        sentences="lines",
    )
    figures = statistics(options, length=8, workers=1, progress=False)
    assert (figures.documents, figures.validation_documents) == (3, 1)
    assert (figures.sentences, figures.cut_sentences, figures.tokens) == (12, 0, 15)
    assert figures.unknown_share == 1 / 15
    assert (figures.mean_sentence_tokens, figures.median_sentence_tokens) == (15 / 12, 1)
    assert (figures.mean_document_tokens, figures.median_document_tokens) == (5, 5)
    # Documents of 5, 1 and 9 tokens fill 1, 1 and 2 examples with room for 5 tokens each:
    # 15 tokens and 4 * 3 special ones in 4 * 8 places.
    assert figures.padding_share == 1 - 27 / 32
    assert list((tmp_path / "temporary").iterdir()) == []
    # Rows of 8 tokens have no room for two; in 64, three documents would leave most to padding.
    assert figures.packed_left_out_share == 0
    longer = statistics(options, length=64, workers=1, progress=False)
    assert longer.padding_share == 1 - 24 / (3 * 64)
    assert longer.packed_padding_share < 0.1
    assert longer.packed_left_out_share < 0.01
    assert statistics(options, limit=1, workers=1, progress=False).tokens == 5


def test_a_length_without_room(tmp_path):
    options = PrepareOptions(source_specs(f"text:{tmp_path}"))
    with pytest.raises(UserError, match=r"data.length is 3; it must be at least 8"):
        statistics(options, length=3)
