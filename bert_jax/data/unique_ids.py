"""Finds ids that appear twice, in constant memory for each id."""

import hashlib

import numpy as np

_ID_BYTES = 8
# Digests that wait to be sorted among the others.
_WAITING = 2**17


class UniqueIds:
    """The ids that appeared so far, in 8 bytes for each.

    They are compared by a digest: of 20 million different ids, two have the same one with a
    probability of 1e-5.
    """

    def __init__(self) -> None:
        self._sorted = np.empty(0, np.uint64)
        self._waiting: set[int] = set()

    def add(self, id: str) -> bool:
        """Takes an id; returns whether it is new."""
        content = id.encode("utf-8", "surrogatepass")
        digest = int.from_bytes(hashlib.blake2b(content, digest_size=_ID_BYTES).digest(), "big")
        at = self._sorted.searchsorted(np.uint64(digest))
        is_sorted = at < len(self._sorted) and int(self._sorted[at]) == digest
        if is_sorted or digest in self._waiting:
            return False
        self._waiting.add(digest)
        if len(self._waiting) == _WAITING:
            new = np.fromiter(self._waiting, np.uint64, _WAITING)
            self._sorted = np.sort(np.concatenate([self._sorted, new]), kind="stable")
            self._waiting.clear()
        return True
