"""Dynamic batching: examples of all requests wait in one queue, and one thread computes them.

The thread takes what waits, the oldest first, and computes rows of like length together. While it
computes, further requests arrive: the more there are, the fuller are its batches.
"""

import contextlib
import dataclasses
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any

from bert_jax.serving.errors import RequestError
from bert_jax.serving.metrics import Metrics
from bert_jax.tasks.base.predictor import EncodedExample

Predict = Callable[[Sequence[Any], Sequence[EncodedExample]], list[Any]]
"""Examples and their rows → their predictions, as `Engine.predict_encoded`."""

# A round of the thread has so many batches: they overlap on an accelerator, and can be sorted.
_ROUND_BATCHES = 4
# The bounds of what a client is told to wait, in seconds.
_SHORTEST_WAIT, _LONGEST_WAIT = 1, 60


@dataclasses.dataclass(eq=False)
class _Job:
    """The examples of a request, and how they are predicted; a cancelled future is not computed.

    Attributes:
        taken: how many of the examples were given to the thread.
        predictions: those that are there, in the order of the examples.
    """

    predict: Predict
    examples: Sequence[Any]
    encoded: Sequence[EncodedExample]
    future: "Future[list[Any]]" = dataclasses.field(default_factory=Future)
    begun: float = dataclasses.field(default_factory=time.monotonic)
    taken: int = 0
    predictions: list[Any] = dataclasses.field(default_factory=list)

    def take(self, rows: int) -> "_Part":
        """The next examples with at most so many rows, but at least one example."""
        first, taken = self.taken, 0
        while self.taken < len(self.examples):
            taken += len(self.encoded[self.taken].rows)
            if taken > rows and self.taken > first:
                break
            self.taken += 1
        return _Part(self, self.examples[first : self.taken], self.encoded[first : self.taken])


@dataclasses.dataclass(frozen=True)
class _Part:
    """Some examples of a job, and their rows."""

    job: _Job
    examples: Sequence[Any]
    encoded: Sequence[EncodedExample]

    @property
    def rows(self) -> int:
        return sum(len(each.rows) for each in self.encoded)


class Queue:
    """The queue, and its thread. Several threads may add to it."""

    def __init__(self, *, batch_size: int, max_waiting: int, metrics: Metrics) -> None:
        """Starts the thread; for arguments see `ServerLimits`."""
        self._round_rows = _ROUND_BATCHES * batch_size
        self._max_waiting, self._metrics = max_waiting, metrics
        self._jobs: deque[_Job] = deque()
        self._waiting = 0  # examples
        # Examples per second, of the last rounds; before the first, all that wait take a second.
        self._rate = float(max_waiting)
        self._is_closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="bert-jax-compute", daemon=True)
        self._thread.start()

    @contextlib.contextmanager
    def admitted(self, count: int) -> Iterator[None]:
        """Counts examples as waiting while they are encoded; `submit`, inside, counts them on.

        Raises:
            RequestError: 429: so many do not fit; 503: the queue was closed.
        """
        with self._changed:
            self._check_open()
            if self._waiting + count > self._max_waiting:
                wait = math.ceil(self._waiting / self._rate)
                seconds = min(max(wait, _SHORTEST_WAIT), _LONGEST_WAIT)
                message = f"too many texts wait; retry in {seconds} s"
                raise RequestError(429, message, headers={"Retry-After": str(seconds)})
            self._count(count)
        try:
            yield
        finally:
            with self._changed:
                self._count(-count)

    def submit(
        self, predict: Predict, examples: Sequence[Any], encoded: Sequence[EncodedExample]
    ) -> "Future[list[Any]]":
        """The predictions of `admitted` examples of a request; jobs of one `predict` are joined.

        The future has the error of the computation, if there is one. If it is cancelled, what has
        not begun is not computed.

        Raises:
            RequestError: 503: the queue was closed.
        """
        job = _Job(predict, examples, encoded)
        with self._changed:
            self._check_open()
            self._jobs.append(job)
            self._count(len(examples))
            self._changed.notify()
        return job.future

    def call(self, function: Callable[[], Any]) -> "Future[list[Any]]":
        """A list with the result of a function that computes, when it is its turn."""
        with self.admitted(1):
            return self.submit(lambda *_: [function()], [None], [EncodedExample([None])])

    def close(self) -> None:
        """Takes nothing more, computes what waits, and ends the thread."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()

    def _check_open(self) -> None:
        if self._is_closed:
            raise RequestError(503, "the server is stopping; send the request to another one")

    def _count(self, change: int) -> None:
        self._waiting += change
        self._metrics.waiting.set(self._waiting)

    def _run(self) -> None:
        while parts := self._next_round():
            begun = time.monotonic()
            self._compute(parts)
            count = sum(len(part.examples) for part in parts)
            rate = count / max(time.monotonic() - begun, 1e-3)
            self._rate = max(0.1, (self._rate + rate) / 2)

    def _next_round(self) -> list[_Part]:
        """Waits for jobs; parts of them that are predicted together, the oldest first."""
        with self._changed:
            while True:
                self._drop_cancelled()
                if self._jobs or self._is_closed:
                    break
                self._changed.wait()
            parts: list[_Part] = []
            rows = self._round_rows
            oldest = self._jobs[0].predict if self._jobs else None
            for job in self._jobs:
                if job.predict == oldest and rows > 0:
                    if job.taken == 0:
                        self._metrics.waited.observe(time.monotonic() - job.begun)
                    parts.append(job.take(rows))
                    rows -= parts[-1].rows
            kept = [job for job in self._jobs if job.taken < len(job.examples)]
            self._jobs = deque(kept)
            self._count(-sum(len(part.examples) for part in parts))
        return parts

    def _drop_cancelled(self) -> None:
        gone = [job for job in self._jobs if job.future.cancelled()]
        if gone:
            self._jobs = deque(job for job in self._jobs if not job.future.cancelled())
            self._count(-sum(len(job.examples) - job.taken for job in gone))
            self._metrics.gone.inc(len(gone))

    def _compute(self, parts: list[_Part]) -> None:
        """Computes parts together; if that fails, each alone, so that one cannot fail others."""
        examples = [example for part in parts for example in part.examples]
        encoded = [each for part in parts for each in part.encoded]
        try:
            predictions = iter(parts[0].job.predict(examples, encoded))
        except Exception as error:
            if len(parts) > 1:
                for part in parts:
                    self._compute([part])
            else:
                self._fail(parts[0].job, error)
            return
        self._metrics.rows.observe(sum(part.rows for part in parts))
        for part in parts:
            job = part.job
            job.predictions.extend(next(predictions) for _ in part.examples)
            is_complete = len(job.predictions) == len(job.examples)
            if is_complete and job.future.set_running_or_notify_cancel():
                job.future.set_result(job.predictions)

    def _fail(self, job: _Job, error: Exception) -> None:
        with self._changed:
            if job in self._jobs:  # its other examples
                self._jobs.remove(job)
                self._count(-(len(job.examples) - job.taken))
        if job.future.set_running_or_notify_cancel():
            job.future.set_exception(error)
