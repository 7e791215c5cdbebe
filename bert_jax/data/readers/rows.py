"""Rows to predict, one by one: what every reader returns to `bert-jax predict`."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")


@dataclasses.dataclass(frozen=True, slots=True)
class Row(Generic[Item]):
    """A row of an input.

    Attributes:
        item: the text, sentence or question; the input of the task's predictor.
        other: the remaining columns or keys, which the output keeps.
        place: "file:line", for errors.
        id: as in the row, else its number from 0.
        gold: which of the other columns has the label; "": none.
    """

    item: Item
    other: dict[str, Any]
    place: str
    id: str
    gold: str = ""


class Rows(Generic[Item]):
    """The rows of an input, read once.

    Attributes:
        count: rows read so far.
        fraction: returns the share of the input that is read; None where it is unknown.
    """

    def __init__(
        self, rows: Iterable[Row[Item]], fraction: Callable[[], float | None] = lambda: None
    ) -> None:
        """Rows are read while they are iterated over."""
        self.count = 0
        self._rows = rows
        self.fraction = fraction

    def __iter__(self) -> Iterator[Row[Item]]:
        for row in self._rows:
            self.count += 1
            yield row

    def estimated_total(self) -> int | None:
        """The number of rows, estimated by the share of bytes that are read; None: unknown."""
        fraction = self.fraction()
        return round(self.count / fraction) if fraction and self.count else None
