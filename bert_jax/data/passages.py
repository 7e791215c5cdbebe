"""Passages: long documents cut as DPR cuts Wikipedia (Karpukhin et al., 2020, section 4.1)."""

import itertools
import re
from collections.abc import Iterator

from bert_jax.data.examples import Document, Passage
from bert_jax.errors import require_at_least

WORDS = 100
"""Words of a passage in the paper."""


def passages(document: Document, words: int = WORDS) -> Iterator[Passage]:
    """The passages of a document, each with its position in the text.

    A word ends at a blank. The last passage may be shorter; a document without words has none.

    Raises:
        OptionError: `words` is not a whole number of at least 1.
    """
    require_at_least("words", words, 1)
    spans = (match.span() for match in re.finditer(r"\S+", document.text))
    blocks = iter(lambda: list(itertools.islice(spans, words)), [])
    for number, block in enumerate(blocks):
        start, end = block[0][0], block[-1][1]
        text = document.text[start:end]
        yield Passage(f"{document.id}#{number}", text, document.title, document.id, start)
