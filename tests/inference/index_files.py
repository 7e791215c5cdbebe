"""Documents and queries of small indexes; what is in their files and hits."""

from pathlib import Path

TEXTS = [
    "the cat sat",
    "the dog ran up",
    "the sun was warm",
    "a sea",
    "the boys walked to the sea .",
    "the mat was warm",
    "one found a shell .",
    "a tree",
    "the dog sat",
    "it was long and warm",
]
QUERIES = ["the cat sat down", "a long sea", "warm"]


def contents(directory):
    """The content of each file, by name."""
    files = (path for path in Path(directory).rglob("*") if path.is_file())
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in files}


def ids_of(hits):
    return [[hit.id for hit in each] for each in hits]
