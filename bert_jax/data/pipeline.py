"""Batches ahead of time: a function of the batch number, run in parallel by tf.data."""

from collections.abc import Callable, Generator

import numpy as np

from bert_jax.data.tensorflow import import_tensorflow

Batch = dict[str, np.ndarray]


def batches_in_order(
    make_batch: Callable[[int], Batch],
    start: int,
    stop: int,
    *,
    parallel_calls: int | None = None,
) -> Generator[Batch, None, None]:
    """Yields `make_batch(start)`, …, `make_batch(stop - 1)`, each made before it is asked for.

    Args:
        make_batch: a pure function of the batch number; every batch has the same keys and dtypes.
        start: the first number; a resumed run starts here at no cost.
        stop: one past the last.
        parallel_calls: how many batches are made at once; None lets tf.data choose.
    """
    if start >= stop:
        return
    tf = import_tensorflow()
    example = make_batch(start)
    names = list(example)
    dtypes = [tf.as_dtype(example[name].dtype) for name in names]

    def make_tensors(number: object) -> dict[str, object]:
        arrays = tf.numpy_function(
            lambda number: tuple(make_batch(int(number)).values()), [number], dtypes
        )
        for array, name in zip(arrays, names, strict=True):
            array.set_shape(example[name].shape)
        return dict(zip(names, arrays, strict=True))

    dataset = tf.data.Dataset.range(start, stop)
    dataset = dataset.map(
        make_tensors, num_parallel_calls=parallel_calls or tf.data.AUTOTUNE, deterministic=True
    )
    dataset = dataset.prefetch(2)
    iterator = dataset.as_numpy_iterator()
    try:
        yield from iterator
    finally:
        # Its threads call back into Python, so it must end before the interpreter does.
        del iterator
