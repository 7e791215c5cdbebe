"""Texts of uneven length, the same for all contenders; only Python's own library is needed."""

import random
import re
from pydoc_data.topics import topics


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
