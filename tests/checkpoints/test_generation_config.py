"""`generation_config.json`: what is obeyed, carried over and refused."""

import json

import pytest

from bert_jax.checkpoints.generation_config import (
    FILE,
    generation_config_bytes,
    read_generation_config,
)
from bert_jax.errors import OptionError, UserError
from bert_jax.generation.next_token import TokenRules
from bert_jax.generation.options import SearchOptions

# As in the file of a summarizer and of a translator on the hub.
SUMMARIZER = {
    "_from_model_config": True,
    "bos_token_id": 0,
    "decoder_start_token_id": 2,
    "early_stopping": True,
    "eos_token_id": 2,
    "forced_bos_token_id": 0,
    "forced_eos_token_id": 2,
    "length_penalty": 2.0,
    "max_length": 142,
    "min_length": 56,
    "no_repeat_ngram_size": 3,
    "num_beams": 4,
    "pad_token_id": 1,
    "transformers_version": "4.27.0.dev0",
}
TRANSLATOR = {
    "bad_words_ids": [[58100]],
    "bos_token_id": 0,
    "decoder_start_token_id": 58100,
    "eos_token_id": 0,
    "forced_eos_token_id": 0,
    "max_length": 512,
    "num_beams": 6,
    "pad_token_id": 58100,
    "renormalize_logits": True,
}


@pytest.fixture
def read(tmp_path):
    """Reads a file with some fields."""

    def make(fields, config_fields=()):
        (tmp_path / FILE).write_text(json.dumps(fields))
        return read_generation_config(tmp_path, dict(config_fields))

    return make


def test_a_summarizer(read):
    defaults = read(SUMMARIZER)
    assert defaults.rules == TokenRules(
        eos_token_ids=(2,),
        pad_token_id=1,
        no_repeat_ngram_size=3,
        min_length=56,
        forced_bos_token_id=0,
        forced_eos_token_ids=(2,),
    )
    assert defaults.decoder_start_token_id == 2
    expected = SearchOptions(141, num_beams=4, length_penalty=2.0, early_stopping=True)
    assert defaults.options(1, {}) == expected
    chosen = {"num_beams": 1, "max_new_tokens": 9, "early_stopping": False}
    assert defaults.options(1, chosen) == SearchOptions(9, length_penalty=2.0)
    assert json.loads(generation_config_bytes(defaults)) == SUMMARIZER


def test_a_translator(read):
    defaults = read(TRANSLATOR)
    assert defaults.rules == TokenRules(
        (0,),
        58100,
        bad_token_ids=(58100,),
        forced_eos_token_ids=(0,),
        renormalize_logits=True,
    )
    assert defaults.options(1, {}) == SearchOptions(511, num_beams=6)


def test_without_a_file_the_config_counts(tmp_path):
    config = {"eos_token_id": 1, "decoder_start_token_id": 0, "num_beams": 2, "d_model": 8}
    defaults = read_generation_config(tmp_path, config | {"max_length": None, "use_cache": True})
    assert defaults.rules == TokenRules((1,), pad_token_id=1)
    assert defaults.options(1, {}) == SearchOptions(num_beams=2)
    assert json.loads(generation_config_bytes(defaults)) == {
        "eos_token_id": 1,
        "decoder_start_token_id": 0,
        "num_beams": 2,
        "max_length": None,
    }
    old = {"bos_token_id": 3, "force_bos_token_to_be_generated": True}
    assert read_generation_config(tmp_path, old).rules.forced_bos_token_id == 3


def test_with_a_file_the_config_does_not_count(read):
    defaults = read({"eos_token_id": [1, 5]}, {"num_beams": 4, "eos_token_id": 2})
    assert defaults.rules.eos_token_ids == (1, 5)
    assert defaults.rules.pad_token_id == 1
    assert defaults.options(1, {}) == SearchOptions()


def test_sampling_of_the_file(read):
    assert read({"do_sample": True}).options(1, {}) == SearchOptions(temperature=1.0, top_k=50)
    defaults = read({"do_sample": True, "temperature": 0.6, "top_p": 0.9, "top_k": None})
    assert defaults.options(1, {}) == SearchOptions(temperature=0.6, top_k=50, top_p=0.9)
    assert defaults.options(1, {"temperature": 0.0}) == SearchOptions()
    # Without `do_sample`, its temperature is for nobody; top-k and top-p are for who samples.
    defaults = read({"temperature": 0.6, "top_p": 0.9, "do_sample": False})
    assert defaults.options(1, {}) == SearchOptions()
    assert defaults.options(1, {"temperature": 1.5}) == SearchOptions(temperature=1.5, top_p=0.9)


def test_values_without_effect_are_carried_over(read):
    fields = {"use_cache": True, "typical_p": 1.0, "num_beam_groups": 1, "min_p": None}
    fields |= {"diversity_penalty": 0.0, "transformers_version": "5.0", "max_time": None}
    assert json.loads(generation_config_bytes(read(fields))) == fields


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"typical_p": 0.9}, "typical_p is 0.9, which is not supported; only 1 is supported"),
        ({"stop_strings": ["."]}, "stop_strings is ['.'], which is not supported; remove it"),
        ({"num_beam": 4}, "num_beam would have no effect; remove it, or correct its name"),
        ({"bad_words_ids": [[1], [2, 3]]}, "bad_words_ids is [2, 3]; only words of one token"),
        ({"bad_words_ids": 7}, "bad_words_ids is 7; it must be a list of lists"),
        ({"eos_token_id": "2"}, "eos_token_id is '2'; it must be a whole number, at least 0"),
        (
            {"decoder_start_token_id": [1, 2]},
            "decoder_start_token_id is [1, 2]; it must be a whole",
        ),
        ({"do_sample": 1}, "do_sample is 1; it must be true or false"),
        (
            {"do_sample": True, "temperature": 0},
            "temperature is 0; with do_sample it must be above",
        ),
        ({"max_length": "long"}, "max_length is 'long'; it must be a whole number"),
    ],
)
def test_what_is_refused(read, tmp_path, fields, message):
    with pytest.raises(UserError) as error:
        read(fields)
    assert str(error.value).startswith(f"{tmp_path / FILE}: {message}")


def test_options_that_exclude_each_other(read, tmp_path):
    defaults = read({"num_beams": 4, "max_length": 20})
    with pytest.raises(OptionError) as error:
        defaults.options(1, {"temperature": 1.0})
    assert str(error.value).startswith(f"{tmp_path / FILE}: num_beams is 4; samples are drawn")
    with pytest.raises(OptionError, match=r"^num_return_sequences is 5; "):
        defaults.options(1, {"num_return_sequences": 5})
    with pytest.raises(OptionError) as error:
        defaults.options(20, {})
    expected = "max_length is 20; the prompt has 20 tokens: set max_new_tokens"
    assert str(error.value) == f"{tmp_path / FILE}: {expected}"
    assert defaults.options(20, {"max_new_tokens": 3}).max_new_tokens == 3


def test_prompts_that_differ(read):
    """As in transformers, `max_new_tokens` replaces `max_length`; null says nothing."""
    for fields in {"max_length": 20, "max_new_tokens": 3}, {"max_length": None}:
        defaults = read(fields)
        assert defaults.options(None, {}).max_new_tokens == fields.get("max_new_tokens", 64)
    defaults = read({"max_length": 20})
    assert defaults.options(None, {"max_new_tokens": 5}).max_new_tokens == 5
    with pytest.raises(OptionError, match="max_length is 20; it counts the tokens of a prompt"):
        defaults.options(None, {})


def test_new_tokens_fit_in(read, tmp_path):
    """If nobody says how many they are: all of an encoder-decoder's, half of the others'."""
    for prompt_length, positions, expected in ((1, 32, 31), (None, 32, 16), (1, 512, 64)):
        assert read({}).options(prompt_length, {}, positions).max_new_tokens == expected
    with pytest.raises(OptionError, match=r"^max_new_tokens is 32; it must be at most 31$"):
        read({}).options(1, {"max_new_tokens": 32}, 32)
    with pytest.raises(OptionError) as error:
        read({"max_new_tokens": 40}).options(None, {}, 32)
    expected = "max_new_tokens is 40; it must be at most 31"
    assert str(error.value) == f"{tmp_path / FILE}: {expected}"
    with pytest.raises(OptionError, match="max_length is 40; the model has 32 positions: set max"):
        read({"max_length": 40}).options(1, {}, 32)
