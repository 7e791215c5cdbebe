"""Options of a search check themselves."""

import pytest

from bert_jax.errors import OptionError
from bert_jax.generation.options import SearchOptions


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_new_tokens": 0}, "max_new_tokens is 0; it must be at least 1"),
        ({"num_beams": 1.5}, "num_beams is 1.5; it must be a whole number, at least 1"),
        ({"length_penalty": "x"}, "length_penalty is 'x'; it must be a number"),
        ({"temperature": -1.0}, "temperature is -1.0; it must be at least 0"),
        ({"temperature": 1.0, "top_p": 0.0}, "top_p is 0.0; it must be above 0 and at most 1"),
        ({"penalty": "none"}, "penalty is 'none'; known are transformers, wmt"),
        (
            {"early_stopping": "always"},
            "early_stopping is 'always'; it must be True, False or \"never\"",
        ),
        (
            {"num_beams": 2, "temperature": 1.0},
            "num_beams is 2; samples are drawn without beams: set num_beams=1 or temperature=0",
        ),
        (
            {"top_k": 5},
            "top_k is 5; only samples have it: set temperature above 0, or top_k=0",
        ),
        (
            {"num_beams": 2, "num_return_sequences": 3},
            "num_return_sequences is 3; set num_beams, 2, to at least as many, or temperature "
            "above 0 for samples",
        ),
        (
            {"penalty": "wmt", "length_penalty": -1.0},
            "length_penalty is -1.0; with penalty=wmt it must be at least 0",
        ),
        (
            {"penalty": "wmt", "early_stopping": True},
            "early_stopping is True; penalty=wmt has its own stop rule: set early_stopping=False",
        ),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(OptionError) as error:
        SearchOptions(**options)
    assert str(error.value) == message


def test_samples_may_be_more_than_beams():
    assert SearchOptions(temperature=1.0, num_return_sequences=5).num_beams == 1
