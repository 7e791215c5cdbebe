"""The names of tensors that people's files have, in every family."""

import types

import pytest

from bert_jax.checkpoints.parameters import DECODER, WORD_EMBEDDINGS, locate
from bert_jax.families.family import family_names, find_family
from bert_jax.models.config import EncoderConfig

NAMES = family_names()


@pytest.mark.parametrize("name", NAMES)
def test_a_repeated_prefix_says_nothing(name):
    """As of a wrapper whose attribute has the name of the prefix: "bert.bert." and "bert.cls."."""
    names = find_family(name).huggingface
    prefix = names.rules[0].tensor.partition(".")[0]
    for rule in names.rules:
        tensor = rule.tensor.format(layer=1)
        assert names.canonical(tensor) == names.canonical(f"{prefix}.{tensor}") == tensor
        assert names.canonical(f"{prefix}.{prefix}.{tensor}") == tensor


@pytest.mark.parametrize("name", NAMES)
def test_a_tied_table_has_either_name(name):
    config, names = EncoderConfig(), find_family(name).huggingface
    words, decoder = map(names.tensor_of, (WORD_EMBEDDINGS, DECODER))
    for tensor in filter(None, (words, decoder)):
        file = types.SimpleNamespace(tensors=[tensor])
        assert locate(file, names, config) == {words: tensor}
