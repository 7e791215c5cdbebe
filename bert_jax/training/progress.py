"""The progress bar of a run, and its throughput in tokens per second."""

import contextlib
import math
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from bert_jax.errors import one_line
from bert_jax.models.config import EncoderConfig
from bert_jax.models.encoder_with_head import row_kinds, token_shape
from bert_jax.process import new_bar


class ProgressBar:
    """A bar with step, tokens/s, losses and time left; in a log file, a line every half minute."""

    def __init__(self, *, start: int, stop: int, enabled: bool) -> None:
        """Shows the steps from `start` to `stop`."""
        self._bar = new_bar("step", enabled=enabled, initial=start, total=stop, title="training")

    @contextlib.contextmanager
    def compiling(self) -> Iterator[None]:
        """Shows that a step of a new shape is compiled, while the bar does not move."""
        self._bar.set_description("compiling")
        try:
            yield
        finally:
            self._bar.set_description("training", refresh=False)

    def advance(self) -> None:
        """Counts a step."""
        self._bar.update()

    def show(self, metrics: dict[str, float]) -> None:
        """Shows metrics after the bar: the speed and each loss with its name."""
        shown = {"tok/s": f"{metrics['tokens_per_second']:,.0f}"}
        shown |= {
            name.removesuffix("_loss"): f"{value:.3f}"
            for name, value in metrics.items()
            if name.endswith("_loss")
        }
        self._bar.set_postfix(shown, refresh=False)

    def note(self, text: str) -> None:
        """Writes a line above the bar."""
        if not self._bar.disable:
            self._bar.write(one_line(text), file=sys.stderr)

    def close(self) -> None:
        """Leaves the bar in its last state."""
        self._bar.close()


class Throughput:
    """Tokens per second since the last reading, without the time of evaluations and saves."""

    def __init__(self) -> None:
        self._since = time.perf_counter()
        self._paused = 0.0
        self._tokens, self._real_tokens = 0, 0.0

    def step(self, *, tokens: int, padding: float) -> None:
        """Counts the tokens of a step that was started.

        Args:
            tokens: number of tokens of the global batch, including padding.
            padding: fraction of these tokens that is padding.
        """
        self._tokens += tokens
        self._real_tokens += tokens * (1 - padding)

    def exclude(self, seconds: float) -> None:
        """Excludes time that was not spent on training, such as an evaluation."""
        self._paused += seconds

    def read(self) -> dict[str, float]:
        """Tokens/s, including and without padding, over the steps since the last reading."""
        now = time.perf_counter()
        seconds = max(now - self._since - self._paused, 1e-9)
        rates = {
            "tokens_per_second": self._tokens / seconds,
            "real_tokens_per_second": self._real_tokens / seconds,
        }
        self._since, self._paused = now, 0.0
        self._tokens, self._real_tokens = 0, 0.0
        return rates


def computed_tokens(batch: Mapping[str, Any], config: EncoderConfig) -> int:
    """Tokens that the encoder of a model computes for a batch, padding included."""
    kinds = row_kinds(batch).values()
    return sum(
        int(rows["pack_indices"].size)
        if "pack_indices" in rows
        else math.prod(token_shape(rows, config))
        for rows in kinds
    )


def padding_fraction(rows: Mapping[str, np.ndarray], config: EncoderConfig) -> float:
    """The fraction of padding in this host's rows of a batch, an estimate for the global batch."""
    return sum(map(_padding, row_kinds(rows).values())) / computed_tokens(rows, config)


def _padding(rows: Mapping[str, np.ndarray]) -> int:
    """Tokens of padding that the encoder computes for rows of one kind."""
    if "pack_indices" in rows:
        return int(np.count_nonzero(rows["pack_indices"] < 0))
    # 0 for padding in each; only a decoder's rows have neither of the first two, and images none.
    masks = (rows.get(name) for name in ("segment_ids", "attention_mask", "weights"))
    mask = next((mask for mask in masks if mask is not None), None)
    return 0 if mask is None else mask.size - int(np.count_nonzero(mask))
