"""`python-docs:`: prose from a hand-written library, and from the real one."""

import pytest

from bert_jax.data.pretraining.sources import SourceSpec, open_source
from bert_jax.data.pretraining.sources.python_docs import PythonDocs, prose
from bert_jax.errors import UserError

MODULE = '''\
"""Counting things
that are wrapped over lines.

    >>> count("a a")
    2

x = [1, 2, 3]
"""

class Counter:
    """A counter of things.

    * It never forgets what it has counted.
    * It never
      counts a thing twice.
    """

    async def count(self):
        "Counts one more of the things."

def after():
    """Runs after the class above, in order."""
'''


def test_prose_is_joined_and_code_dropped():
    text = "Heading\n*******\n\nThe first words\nof a text:\n\n   x = f(y)[0]\n\n"
    text += '1. "One" of two points.\n'
    assert prose(text) == 'The first words of a text:\n"One" of two points.'


def test_docstrings_come_in_the_order_of_the_source(tmp_path):
    (tmp_path / "json").mkdir()
    (tmp_path / "test").mkdir()
    (tmp_path / "counting.py").write_text(MODULE)
    (tmp_path / "json" / "__init__.py").write_text("'It reads and writes the text.'")
    (tmp_path / "test" / "test_counting.py").write_text("'It is only a test of this.'")
    (tmp_path / "broken.py").write_text("def broken(:")
    found = list(PythonDocs(SourceSpec("python-docs:"), library=tmp_path).blocks())
    assert [block.text for block in found[-2:]] == [
        "Counting things that are wrapped over lines.\n"
        "A counter of things.\n"
        "It never forgets what it has counted.\n"
        "It never counts a thing twice.\n"
        "Counts one more of the things.\n"
        "Runs after the class above, in order.",
        "It reads and writes the text.",
    ]
    assert all(block.starts_document for block in found)
    assert "test of this" not in " ".join(block.text for block in found)


@pytest.mark.slow
def test_this_interpreter_has_enough_text():
    source = open_source(SourceSpec("python-docs:"))
    found = list(source.blocks())
    assert sum(len(block.text.split()) for block in found) > 200_000
    assert sum(block.starts_document for block in found) > 300
    assert any("Assert statements are a convenient way" in block.text for block in found)
    assert list(source.blocks()) == found
    assert source.position == source.size


def test_nothing_may_follow_the_colon():
    with pytest.raises(UserError, match="nothing may follow"):
        open_source(SourceSpec("python-docs:json"))
