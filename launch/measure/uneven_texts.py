"""Texts of uneven length, the same for all contenders; only Python's own library is needed."""

import random
import re
from pydoc_data.topics import topics

# Words of half of the short texts.
SHORT = 12
# The tags of CoNLL-2003.
TAGS = ("O", "B-PER", "I-PER", "B-ORG", "I-ORG", "B-LOC", "I-LOC", "B-MISC", "I-MISC")


def uneven_texts(count: int, words: int = 40) -> list[str]:
    """English texts, log-normal in length: half of them have fewer words than `words`.

    They are pieces of Python's documentation; the longest has 400 words.
    """
    documentation = " ".join(topics[name] for name in sorted(topics))
    source = re.sub(r"[^\w\s.,;:()'-]", "", documentation).split()
    generator = random.Random(0)
    texts = []
    for _ in range(count):
        length = min(400, max(3, round(generator.lognormvariate(0.0, 0.9) * words)))
        start = generator.randrange(len(source) - length)
        texts.append(" ".join(source[start : start + length]))
    return texts


def questions(count: int) -> tuple[list[str], list[str]]:
    """Questions of at most 100 characters and their passages, half of them of 100 words or more."""
    asked = [f"{text[:100]}?" for text in uneven_texts(count, words=10)]
    return asked, uneven_texts(count, words=100)
