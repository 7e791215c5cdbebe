"""Limits, sides and further keys of a `tokenizer_config.json`."""

import json

import pytest

from bert_jax.errors import UserError
from bert_jax.tokenization import load_tokenizer


@pytest.fixture
def load(uncased, tmp_path):
    """Loads `uncased` with further keys in its `tokenizer_config.json`."""
    uncased.save(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    saved = json.loads(path.read_text())

    def change_and_load(**keys):
        path.write_text(json.dumps(saved | keys))
        return load_tokenizer(tmp_path)

    return change_and_load


@pytest.mark.parametrize(
    ("keys", "limit"),
    [
        ({}, None),
        ({"model_max_length": 8}, 8),
        ({"max_len": 8}, 8),  # the key of transformers 2
        ({"model_max_length": 1000000000000000019884624838656}, None),
        ({"model_max_length": 1e30}, None),
        ({"model_max_length": None}, None),
    ],
)
def test_the_limit_of_the_files(load, keys, limit):
    assert load(**keys).model_max_length == limit


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"model_max_length": 0}, "tokenizer_config.json: model_max_length is 0; give a number"),
        ({"model_max_length": "8"}, "model_max_length is '8'; give a number of tokens from 1"),
        ({"truncation_side": "middle"}, "truncation_side is 'middle'; give right or left"),
        ({"padding_side": 1}, "padding_side is 1; give right or left"),
    ],
)
def test_other_values_are_refused(load, keys, message):
    with pytest.raises(UserError, match=message):
        load(**keys)


def test_texts_are_cut_on_the_side_of_the_files(load):
    """The values are those of transformers 5.24."""
    tokenizer = load(truncation_side="left")
    texts, pairs = ["the dog, the play"], ["cafe dog."]  # 5 6 7 tokens

    def ids(**options):
        return tokenizer.encode_batch(texts, **options)[0].ids

    assert ids() == [2, 5, 10, 11, 5, 6, 3]
    assert ids(max_length=5) == [2, 11, 5, 6, 3]
    assert ids(pairs=pairs, max_length=8) == [2, 11, 5, 6, 3, 10, 12, 3]
    assert ids(pairs=pairs, max_length=7) == [2, 5, 6, 3, 10, 12, 3]
    assert ids(pairs=pairs, max_length=7, truncation="only_first") == [2, 6, 3, 9, 10, 12, 3]


def test_what_the_files_say_is_saved_again(load, tmp_path):
    keys = {
        "model_max_length": 8,
        "truncation_side": "left",
        "padding_side": "left",
        "clean_up_tokenization_spaces": True,
        "chat_template": "{{ messages }}",
    }
    local = {"name_or_path": "/home/someone", "special_tokens_map_file": None}
    tokenizer = load(**keys, **local).with_words(["dogs"])
    tokenizer.save(tmp_path / "again", max_length=512)

    saved = json.loads((tmp_path / "again" / "tokenizer_config.json").read_text())

    assert saved.items() >= keys.items()
    assert not saved.keys() & local.keys()
    assert load_tokenizer(tmp_path / "again").description == tokenizer.description
