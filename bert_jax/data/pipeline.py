"""Prefetched batches: a function of the batch number, run in parallel by tf.data."""

import atexit
import weakref
from collections.abc import Callable, Generator, Iterator

import numpy as np

from bert_jax.data.tensorflow import import_tensorflow

Batch = dict[str, np.ndarray]

Batches = Generator[Batch, None, None]
"""Batches in order; it must be closed, which ends the threads that make them."""

# Batches of so few numbers in all are made when they are read: to import TensorFlow takes longer,
# and steps are timed on accelerators where it is not installed.
_FEW_NUMBERS = 20_000_000

_open: "weakref.WeakSet[Batches]" = weakref.WeakSet()


def batches_in_order(make_batch: Callable[[int], Batch], start: int, stop: int) -> Batches:
    """Yields `make_batch(start)`, …, `make_batch(stop - 1)`, made ahead of time unless few.

    Args:
        make_batch: pure function of the batch number; every batch has the same keys and dtypes.
        start: first batch number; a resumed run starts here at no cost.
        stop: one past the last batch number.
    """
    batches = _batches(make_batch, start, stop)
    _open.add(batches)
    return batches


def _batches(make_batch: Callable[[int], Batch], start: int, stop: int) -> Batches:
    if stop <= start:
        return
    example = make_batch(start)
    if (stop - start) * sum(array.size for array in example.values()) <= _FEW_NUMBERS:
        yield example
        yield from map(make_batch, range(start + 1, stop))
        return
    tf = import_tensorflow()
    dtypes = [tf.as_dtype(array.dtype) for array in example.values()]
    # None at the end: TensorFlow never frees `make` and the objects that it refers to.
    current: Callable[[int], Batch] | None = make_batch

    errors: list[Exception] = []  # TensorFlow makes a text of several lines of them

    def make(number: int) -> tuple[np.ndarray, ...]:
        call = current
        try:
            return tuple((call(int(number)) if call else example).values())
        except Exception as error:
            errors.append(error)
            raise

    def make_tensors(number: object) -> dict[str, object]:
        arrays = tf.numpy_function(make, [number], dtypes)
        for array, known in zip(arrays, example.values(), strict=True):
            array.set_shape(known.shape)
        return dict(zip(example, arrays, strict=True))

    keep_reading = tf.Variable(True)
    dataset = tf.data.Dataset.range(start, stop).take_while(lambda _: keep_reading)
    dataset = dataset.map(make_tensors, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    iterator = dataset.prefetch(2).as_numpy_iterator()
    try:
        yield from iterator
    except tf.errors.OpError as error:
        raise (errors or [error])[0] from None
    finally:
        # TensorFlow's threads call `make_batch`. If the iterator were dropped in the meantime, they
        # could wait for ever for an interpreter that has ended; so start no more batches, and wait
        # for the batches that have started.
        current = None
        keep_reading.assign(False)
        _drain(iterator)


def _drain(iterator: Iterator[Batch]) -> None:
    while True:
        try:
            next(iterator)
        except StopIteration:
            return
        except Exception:  # a failed batch; its error was raised to its reader
            continue


@atexit.register
def _close_all() -> None:
    """Ends open iterators before the interpreter shuts down."""
    for batches in list(_open):
        batches.close()
