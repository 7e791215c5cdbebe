"""Texts of uneven length, the same for all contenders; only Python's own library is needed."""

import random
import re
from pydoc_data.topics import topics

# Half of the short texts have fewer words.
SHORT = 12
# The tags of CoNLL-2003.
TAGS = ("O", "B-PER", "I-PER", "B-ORG", "I-ORG", "B-LOC", "I-LOC", "B-MISC", "I-MISC")


def words() -> list[str]:
    """The words of Python's documentation, in their order."""
    documentation = " ".join(topics[name] for name in sorted(topics))
    return re.sub(r"[^\w\s.,;:()'-]", "", documentation).split()


def uneven_texts(count: int, median: int = 40) -> list[str]:
    """Pieces of Python's documentation, log-normal in length, of at most 400 words."""
    source = words()
    generator = random.Random(0)
    texts = []
    for _ in range(count):
        length = min(400, max(3, round(generator.lognormvariate(0.0, 0.9) * median)))
        start = generator.randrange(len(source) - length)
        texts.append(" ".join(source[start : start + length]))
    return texts


def questions(count: int) -> tuple[list[str], list[str]]:
    """Questions of at most 100 characters and their passages, with a median of 100 words."""
    asked = [f"{text[:100]}?" for text in uneven_texts(count, median=10)]
    return asked, uneven_texts(count, median=100)
