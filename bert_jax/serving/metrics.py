"""What a server counts, in the form that Prometheus reads."""

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)

CONTENT_TYPE = CONTENT_TYPE_LATEST
"""The type of `Metrics.exposition`."""

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
        self._registry = registry = CollectorRegistry()
        name = "bert_jax_{}".format
        self.requests = Counter(
            name("requests"), "Requests.", ("route", "status"), registry=registry
        )
        self.seconds = Histogram(
            name("request_seconds"),
            "Time of a request.",
            ("route",),
            buckets=_SECONDS,
            registry=registry,
        )
        self.waiting = Gauge(name("waiting_examples"), "Examples that wait.", registry=registry)
        self.waited = Histogram(
            name("queue_seconds"), "Time in the queue.", buckets=_SECONDS, registry=registry
        )
        self.rows = Histogram(
            name("round_rows"), "Rows computed together.", buckets=_ROWS, registry=registry
        )
        self.tokens = Counter(name("tokens"), "Tokens of texts.", registry=registry)
        self.cut = Counter(name("cut_texts"), "Texts that were cut.", registry=registry)
        self.gone = Counter(name("gone_requests"), "Requests given up.", registry=registry)

    def exposition(self) -> bytes:
        """All metrics as text, of the type `CONTENT_TYPE`."""
        return generate_latest(self._registry)
