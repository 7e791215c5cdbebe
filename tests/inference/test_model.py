"""A loaded model that is asked for words."""

import json

import jax
import numpy as np
import pytest

import bert_jax
from bert_jax.checkpoints import model_directory
from bert_jax.errors import UserError
from bert_jax.models.bert import BertForPreTraining, abstract_params


@pytest.fixture(scope="module")
def model_path(tmp_path_factory, tiny_config, tokenizer):
    """A model that always answers "song", then "sun", then "sea": only the output bias counts."""
    params = jax.tree.map(
        lambda leaf: np.zeros(leaf.shape, np.float32),
        abstract_params(BertForPreTraining(tiny_config)),
    )
    for word, score in {"song": 3.0, "sun": 2.0, "sea": 1.0}.items():
        params["mlm_head"]["bias"][tokenizer.token_to_id(word)] = score
    directory = tmp_path_factory.mktemp("model")
    model_directory.save(
        directory, tiny_config, params, tokenizer, architecture="BertForPreTraining"
    )
    return directory


@pytest.fixture(scope="module")
def model(model_path):
    return bert_jax.load(model_path)


def test_fillings_by_hand(model):
    found = model.fill_mask("The [MASK] was long.", top_k=3)
    assert [filling.token for filling in found] == ["song", "sun", "sea"]
    assert [filling.token_id for filling in found] == [16, 17, 18]
    assert [filling.text for filling in found] == [
        "the song was long.",
        "the sun was long.",
        "the sea was long.",
    ]
    total = np.exp([3.0, 2.0, 1.0]).sum() + 37
    np.testing.assert_allclose(
        [filling.score for filling in found], np.exp([3.0, 2.0, 1.0]) / total, rtol=1e-5
    )


def test_all_scores_sum_to_one(model):
    found = model.fill_mask("[MASK]", top_k=1000)
    assert len(found) == 40
    assert sum(filling.score for filling in found) == pytest.approx(1.0)


def test_texts_that_cannot_be_filled(model):
    with pytest.raises(UserError, match=r"the text has no \[MASK\]: 'The sun was long.'"):
        model.fill_mask("The sun was long.")
    with pytest.raises(UserError, match="the text has 43 tokens, the model takes 32; shorten it"):
        model.fill_mask("the [MASK] " * 20 + ".")


def test_a_directory_that_is_no_model(tmp_path):
    with pytest.raises(UserError, match="config.json does not exist; give a model directory"):
        bert_jax.load(tmp_path)


def test_a_vocabulary_beyond_the_word_table_is_refused(model_path, tmp_path, pieces):
    import shutil

    directory = shutil.copytree(model_path, tmp_path / "model")
    (directory / "tokenizer.json").unlink()
    (directory / "vocab.txt").write_text("\n".join([*pieces, "moon", "star"]) + "\n")
    assert json.loads((directory / "config.json").read_text())["vocab_size"] == 40
    with pytest.raises(UserError, match="42"):
        bert_jax.load(directory)
