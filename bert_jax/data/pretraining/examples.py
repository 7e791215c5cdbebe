"""Examples of a corpus as a pure function of (seed, number), and the batches of them.

The data position is one integer. Example n of a run belongs to epoch n // `examples_per_epoch`; its
position in the corpus and its random choices are a pure function of (seed, n). Global batch g
consists of the examples g·B … g·B + B-1; a host makes only its own rows of it. So the batches
depend neither on the number of hosts and workers nor on where a run was resumed.
"""

import abc
from typing import NamedTuple

import numpy as np

from bert_jax.data import randomness
from bert_jax.data.pipeline import Batch

# Streams of random numbers of an epoch.
_SHUFFLE, _PHASES, _EXAMPLES = 0, 1, 2


class Drawn(NamedTuple):
    """What is random about B examples.

    Attributes:
        indices: int64 [B], index of each example in its epoch.
        phase_keys: uint64 [B], key of choices that an epoch makes for all its examples.
        keys: uint64 [B], key of each example.
    """

    indices: np.ndarray
    phase_keys: np.ndarray
    keys: np.ndarray


class CorpusExamples(abc.ABC):
    """The examples of one split of a corpus.

    Attributes:
        examples_per_epoch: number of examples of an epoch.
    """

    examples_per_epoch: int

    def __init__(self, seed: int) -> None:
        """Seeds the random choices of all examples."""
        self._base_key = randomness.derive_key(seed)

    @abc.abstractmethod
    def examples(self, numbers: np.ndarray) -> Batch:
        """The examples with these numbers, int64 [B], in any order; the class has the keys."""

    @property
    def rows_per_epoch(self) -> int:
        """The number of examples, since each row is one."""
        return self.examples_per_epoch

    def batch(self, number: int, rows: int, *, host: int = 0, hosts: int = 1) -> Batch:
        """This host's rows of global batch `number`.

        Args:
            number: number of the batch in the run, from 0.
            rows: number of rows of this host; the global batch has `rows * hosts`.
            host: index of this host; it makes the rows from `host * rows` on.
            hosts: number of hosts.
        """
        first = (number * hosts + host) * rows
        return self.examples(np.arange(first, first + rows))

    def evaluation_batch(self, number: int, rows: int, columns: np.ndarray) -> Batch:
        """Rows of batch `number` of an evaluation, where each example of an epoch counts once.

        Args:
            number: number of the batch, from 0.
            rows: examples per batch.
            columns: int64 [B], index of each row in its batch. Rows past the end of the batch or of
                the epoch are padding: their weights are 0.
        """
        numbers = number * rows + columns
        inside = (columns < rows) & (numbers < self.examples_per_epoch)
        batch = self.examples(np.where(inside, numbers, 0))
        for name in batch:
            if name.endswith("weights"):
                batch[name] = (batch[name].T * inside).T.astype(np.float32)
        return batch

    def _drawn(self, numbers: np.ndarray) -> Drawn:
        """The shuffled indices of examples, and their keys."""
        epochs, indices = np.divmod(numbers, self.examples_per_epoch)
        epoch_keys = randomness.random_bits(self._base_key, epochs)
        shuffle_keys = randomness.random_bits(epoch_keys, _SHUFFLE)
        indices = randomness.permute(indices, self.examples_per_epoch, shuffle_keys)
        phase_keys = randomness.random_bits(epoch_keys, _PHASES)
        keys = randomness.random_bits(randomness.random_bits(epoch_keys, _EXAMPLES), indices)
        return Drawn(indices, phase_keys, keys)
