"""What a person sees while a run goes on: one bar, or a line now and then in a log file."""

import sys
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from tqdm import tqdm


class Progress:
    """A bar with step, tokens/s, losses and time left.

    On a terminal it moves; in a log file it is a line every half minute.
    """

    def __init__(self, *, start: int, stop: int, enabled: bool) -> None:
        """Shows steps `start` … `stop`."""
        terminal = sys.stderr.isatty()
        self._bar = tqdm(
            total=stop,
            initial=start,
            desc="training",
            unit="step",
            disable=not enabled,
            dynamic_ncols=True,
            mininterval=0.2 if terminal else 30.0,
            maxinterval=10.0 if terminal else 60.0,
        )

    def advance(self) -> None:
        """One more step."""
        self._bar.update()

    def show(self, metrics: dict[str, float]) -> None:
        """Puts metrics behind the bar: the speed and every loss with its name."""
        shown = {"tok/s": f"{metrics['tokens_per_second']:,.0f}"}
        shown |= {
            name.removesuffix("_loss"): f"{value:.3f}"
            for name, value in metrics.items()
            if name.endswith("_loss")
        }
        self._bar.set_postfix(shown, refresh=False)

    def note(self, text: str) -> None:
        """A line of its own above the bar."""
        if not self._bar.disable:
            self._bar.write(text, file=sys.stderr)

    def close(self) -> None:
        """Leaves the bar as it is."""
        self._bar.close()


class Speedometer:
    """Tokens per second since the last reading, without time spent in between on other things."""

    def __init__(self) -> None:
        """Starts the clock."""
        self._since = time.perf_counter()
        self._paused = 0.0
        self._tokens, self._real_tokens = 0, 0.0

    def step(self, *, tokens: int, padding: float) -> None:
        """One more step is under way.

        Args:
            tokens: of the global batch, padding counted.
            padding: the share of padding among them.
        """
        self._tokens += tokens
        self._real_tokens += tokens * (1 - padding)

    def exclude(self, seconds: float) -> None:
        """Leaves out time that was not training, such as an evaluation."""
        self._paused += seconds

    def read(self) -> dict[str, float]:
        """Tokens/s of the steps since the last reading, with padding and without; starts again."""
        now = time.perf_counter()
        seconds = max(now - self._since - self._paused, 1e-9)
        rates = {
            "tokens_per_second": self._tokens / seconds,
            "real_tokens_per_second": self._real_tokens / seconds,
        }
        self._since, self._paused = now, 0.0
        self._tokens, self._real_tokens = 0, 0.0
        return rates


def computed_tokens(batch: Mapping[str, Any]) -> int:
    """How many tokens, padding among them, the encoder computes for a batch."""
    return int(batch.get("slots", batch["input_ids"]).size)


def share_of_padding(rows: Mapping[str, np.ndarray]) -> float:
    """The share of padding in this host's rows of a batch, which stands for that of all."""
    if "slots" in rows:
        return np.mean(rows["slots"] < 0).item()
    mask = rows.get("segment_ids", rows.get("attention_mask"))  # 0 for padding in both
    return 0.0 if mask is None else 1 - np.count_nonzero(mask) / mask.size
