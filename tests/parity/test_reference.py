"""Without PyTorch or transformers there is one clear line."""

import subprocess
import sys

import pytest

from bert_jax.errors import UserError
from bert_jax.parity.compare import compare

PROGRAM = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocker())
from bert_jax.errors import UserError
from bert_jax.parity.compare import compare
assert not {{"torch", "transformers"}} & set(sys.modules)
try:
    compare("anything")
except UserError as error:
    print(error)
"""


def test_a_missing_library_is_an_error_with_the_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(UserError, match="torch cannot be imported; pip install torch transformers"):
        compare("anything")


@pytest.mark.slow
@pytest.mark.parametrize("blocked", ["torch", "transformers"])
def test_a_missing_library_is_one_line_with_the_remedy(blocked):
    if blocked == "transformers":
        pytest.importorskip("torch")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(blocked=blocked)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == (
        f"parity computes with PyTorch and transformers too, and {blocked} cannot be imported; "
        "pip install torch transformers\n"
    )
    assert done.stderr == ""
