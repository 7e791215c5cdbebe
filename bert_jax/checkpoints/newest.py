"""Which of a run's checkpoints are its newest ones, to be kept or averaged."""

import dataclasses
from collections.abc import Sequence

from orbax.checkpoint.checkpoint_managers import PreservationPolicy


@dataclasses.dataclass(frozen=True)
class Newest(PreservationPolicy):
    """The newest checkpoints, and the policy of orbax that keeps them.

    Between regular checkpoints lie those that only a signal has caused. They do not count: an
    uninterrupted run does not have them, and what is averaged must be the same.

    Attributes:
        count: number of checkpoints.
        every: interval of the regular checkpoints in steps; the newest one is regular, too. 0: all
            are.
    """

    count: int
    every: int = 0

    def among(self, steps: Sequence[int]) -> list[int]:
        """The newest of these steps; they and the result are in ascending order."""
        regular = [
            step for step in steps if not self.every or step % self.every == 0 or step == steps[-1]
        ]
        return regular[-self.count :]

    def should_preserve(self, checkpoints: Sequence, *, context: object) -> list[bool]:
        """For each checkpoint of orbax, in the order of the steps, whether it is kept."""
        kept = self.among([checkpoint.step for checkpoint in checkpoints])
        return [checkpoint.step in kept for checkpoint in checkpoints]
