"""What transformers writes to `generation_config.json` is known."""

import json

import pytest

from bert_jax.checkpoints.generation_config import generation_config_bytes, read_generation_config
from bert_jax.generation.next_token import TokenRules
from bert_jax.generation.options import SearchOptions

pytestmark = pytest.mark.slow


def test_every_key_is_known(tmp_path):
    """At the values of transformers, none has an effect that it has not there."""
    transformers = pytest.importorskip("transformers")
    config = transformers.GenerationConfig()
    fields = config.to_dict() | config._get_default_generation_params()
    (tmp_path / "generation_config.json").write_text(json.dumps(fields))
    defaults = read_generation_config(tmp_path, {})
    assert defaults.rules == TokenRules()
    assert defaults.options(1, {}) == SearchOptions(max_new_tokens=19)  # its max_length is 20


def test_a_saved_file(tmp_path):
    transformers = pytest.importorskip("transformers")
    config = transformers.GenerationConfig(
        eos_token_id=[1, 2], num_beams=3, bad_words_ids=[[7]], max_new_tokens=5, length_penalty=0.5
    )
    config.save_pretrained(tmp_path)
    defaults = read_generation_config(tmp_path, {})
    assert defaults.rules == TokenRules((1, 2), 1, bad_token_ids=(7,))
    assert defaults.options(1, {}) == SearchOptions(5, num_beams=3, length_penalty=0.5)
    (tmp_path / "generation_config.json").write_bytes(generation_config_bytes(defaults))
    assert transformers.GenerationConfig.from_pretrained(tmp_path) == config
