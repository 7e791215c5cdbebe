"""Without PyTorch or transformers there is one clear line."""

import sys
from types import ModuleType

import pytest

from bert_jax.errors import UserError
from bert_jax.parity.compare import compare


@pytest.mark.parametrize("missing", ["torch", "transformers"])
def test_a_missing_library_is_an_error_with_the_remedy(monkeypatch, missing):
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(UserError) as caught:
        compare("anything")
    assert str(caught.value) == (
        f"parity computes with PyTorch and transformers too, and {missing} cannot be imported; "
        "pip install torch transformers"
    )
