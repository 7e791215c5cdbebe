"""Lengths and row counts that batches are padded to: few, so that few shapes are compiled."""


def bucket_length(length: int, most: int) -> int:
    """The next of 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, …, but not above `most`."""
    # Two to an octave: half of the next lower power of two.
    step = max(16, 1 << max((length - 1).bit_length() - 2, 0))
    return min(-(-length // step) * step, most)


def bucket_rows(rows: int, batch_size: int, multiple: int) -> int:
    """The next power of two, not above `batch_size`, rounded up to a multiple."""
    power = min(1 << (rows - 1).bit_length(), batch_size)
    return -(-power // multiple) * multiple
