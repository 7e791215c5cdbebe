"""What a server counts, in the form that Prometheus reads."""

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

# Seconds: from an answer of a small model to a time-out.
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """The metrics of a server, all with the prefix `bert_jax_`.

    Attributes:
        requests: requests by route and status.
        seconds: time from the first byte of a request to its answer, by route.
        waiting: examples that wait to be computed; a measure to scale by.
        waited: time of the examples of a request in the queue.
        rows: rows that are computed together, in a few batches.
        tokens: tokens of the texts of requests, without padding.
        cut: texts that were longer than the limit.
        gone: requests that were given up before they were computed: no client, or a time-out.
    """

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        own: dict[str, Any] = {"namespace": "bert_jax", "registry": self._registry}
        self.requests = Counter("requests", "Requests.", ("route", "status"), **own)
        self.seconds = Histogram(
            "request_seconds", "Time of a request.", ("route",), buckets=_SECONDS, **own
        )
        self.waiting = Gauge("waiting_examples", "Examples that wait.", **own)
        self.waited = Histogram("queue_seconds", "Time in the queue.", buckets=_SECONDS, **own)
        self.rows = Histogram("round_rows", "Rows computed together.", buckets=_ROWS, **own)
        self.tokens = Counter("tokens", "Tokens of texts.", **own)
        self.cut = Counter("cut_texts", "Texts that were cut.", **own)
        self.gone = Counter("gone_requests", "Requests given up.", **own)

    def exposition(self) -> bytes:
        """All metrics as text, of the type `CONTENT_TYPE_LATEST`."""
        return generate_latest(self._registry)
