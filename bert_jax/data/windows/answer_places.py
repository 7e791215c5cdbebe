"""Where in its passage a gold answer really stands."""

import bisect
import dataclasses
import functools
import unicodedata

from bert_jax.data.examples import GoldAnswer


@dataclasses.dataclass(frozen=True)
class Place:
    """Characters of a passage, `passage[start:stop]`.

    Attributes:
        start: the first.
        stop: behind the last.
        is_stated: whether this is what the file says; else the answer was searched for.
    """

    start: int
    stop: int
    is_stated: bool


def find_answer(passage: str, answer: GoldAnswer) -> Place | None:
    """Finds an answer: where it is said to be, else nearby, else written otherwise.

    Of several occurrences the nearest to the stated start counts. Where there is none, all white
    space (U+00A0 and U+202F among it) and compatible forms of characters (é as one or as two, ﬁ,
    ½) are taken to be the same.

    Returns:
        None where the passage does not have the answer.
    """
    stop = answer.start + len(answer.text)
    if answer.start >= 0 and passage[answer.start : stop] == answer.text:
        return Place(answer.start, stop, is_stated=True)
    start = _nearest(passage, answer.text, answer.start)
    if start is not None:
        return Place(start, start + len(answer.text), is_stated=False)
    wanted, _ = _folded(answer.text)
    folded, origins = _folded(passage)
    wanted = wanted.strip(" ")
    near = bisect.bisect_left(origins, answer.start)
    start = _nearest(folded, wanted, near) if wanted else None
    if start is None:
        return None
    return Place(origins[start], origins[start + len(wanted) - 1] + 1, is_stated=False)


def _nearest(passage: str, text: str, start: int) -> int | None:
    """The occurrence that begins nearest to a place."""
    start = max(start, 0)
    found = (passage.rfind(text, 0, start + len(text)), passage.find(text, start))
    there = [place for place in found if place >= 0]
    return min(there, key=lambda place: abs(place - start)) if there else None


@functools.lru_cache(maxsize=8)  # several questions ask about the same passage
def _folded(text: str) -> tuple[str, list[int]]:
    """A text in compatible decomposition with single spaces, and whence each character comes."""
    characters: list[str] = []
    origins: list[int] = []
    for place, character in enumerate(text):
        if character.isspace():
            if characters and characters[-1] == " ":
                continue
            character = " "
        for part in unicodedata.normalize("NFKD", character):
            characters.append(part)
            origins.append(place)
    return "".join(characters), origins
