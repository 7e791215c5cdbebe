"""Texts of uneven length, the same for all contenders; only Python's own library is needed."""

import argparse
import gzip
import random
import re
from pathlib import Path
from pydoc_data.topics import topics

# Training steps on pairs take so many batches in turn.
PAIR_BATCHES = 4
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


def lines_or_prompts(path: str, count: int) -> list[str]:
    """So many lines of a file, compressed or not; without one, prompts of 16 words."""
    if not path:
        return [" ".join(text.split()[:16]) for text in uneven_texts(count, median=60)]
    content = Path(path).read_bytes()
    text = gzip.decompress(content) if path.endswith(".gz") else content
    return text.decode().splitlines()[:count]


def requests(options: argparse.Namespace) -> list[list[str]]:
    """Texts in lists of `batch`: lines of the file `data`, or pieces with a median of `words`."""
    if options.data:
        texts = lines_or_prompts(options.data, options.texts)
    else:
        texts = uneven_texts(options.texts, options.words)
    return [texts[start : start + options.batch] for start in range(0, len(texts), options.batch)]
