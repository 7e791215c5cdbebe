"""Load on a server: clients that each send one request after another, all in one process.

Nothing of bert_jax is imported here, as in `peers.py`.
"""

import asyncio
import collections
import contextlib
import dataclasses
import itertools
import json
import os
import statistics
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import aiohttp

from benchmarks.commands import resident_bytes

_READY = "serving on "
_START_SECONDS = 600.0
_ANSWER_SECONDS = 120.0
# Times are given for so many texts.
UNIT = 1000


@dataclasses.dataclass
class Outcome:
    """What became of all requests.

    Attributes:
        seconds: from the first request to the last answer.
        statuses: how many answers had each status.
        lost: requests without an answer.
        told_when: answers with 429 that say in seconds when to retry.
        latencies: seconds of each answer with 200.
    """

    seconds: float = 0.0
    statuses: collections.Counter[int] = dataclasses.field(default_factory=collections.Counter)
    lost: int = 0
    told_when: int = 0
    latencies: list[float] = dataclasses.field(default_factory=list)

    @property
    def answered(self) -> int:
        """Answers with 200."""
        return self.statuses[200]

    @property
    def errors(self) -> int:
        """Answers with another status than 200 and 429."""
        return self.statuses.total() - self.answered - self.statuses[429]

    def figures(self) -> dict[str, float]:
        """Rate, latencies, errors and lost requests."""
        parts = statistics.quantiles(self.latencies, n=100) if self.answered > 1 else [0.0] * 99
        return {
            "requests/s": self.answered / self.seconds,
            "p50 ms": 1000 * parts[49],
            "p99 ms": 1000 * parts[98],
            "errors": self.errors,
            "lost": self.lost,
        }


def put_load(url: str, texts: Sequence[Sequence[str]], clients: int, seconds: float) -> Outcome:
    """Sends lists of texts in turn, again and again, for some seconds; each is a request."""
    bodies = itertools.cycle([json.dumps({"inputs": each}).encode() for each in texts])
    return asyncio.run(_clients(url, bodies, clients, seconds))


async def _clients(url: str, bodies: Iterator[bytes], count: int, seconds: float) -> Outcome:
    outcome, begun = Outcome(), time.perf_counter()
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(_ANSWER_SECONDS),
        headers={"Content-Type": "application/json"},
    ) as session:
        end = begun + seconds
        await asyncio.gather(*(_client(session, url, bodies, end, outcome) for _ in range(count)))
    outcome.seconds = time.perf_counter() - begun
    return outcome


async def _client(
    session: aiohttp.ClientSession, url: str, bodies: Iterator[bytes], end: float, outcome: Outcome
) -> None:
    """One request after another until a time of `time.perf_counter`; all are awaited."""
    while (begun := time.perf_counter()) < end:
        try:
            async with session.post(url, data=next(bodies)) as answer:
                await answer.read()
        except (aiohttp.ClientError, TimeoutError):
            outcome.lost += 1
            continue
        outcome.statuses[answer.status] += 1
        if answer.status == 200:
            outcome.latencies.append(time.perf_counter() - begun)
        outcome.told_when += answer.headers.get("Retry-After", "").isdecimal()


class Server:
    """A server on loopback in a process of its own, which ends with the group of this process.

    Attributes:
        address: its URL.
    """

    def __init__(self, command: Sequence[str], log: Path) -> None:
        """Starts it and waits until it takes requests: its output then has a line with its URL.

        Raises:
            SystemExit: it has ended, or takes too long.
        """
        self._log = log
        with log.open("w", encoding="utf-8") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        end = time.monotonic() + _START_SECONDS
        while not (address := self._said()):
            if self._process.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"the server did not start, see {log}")
            time.sleep(0.1)
        self.address = address

    def _said(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        return next((line.removeprefix(_READY) for line in lines if line.startswith(_READY)), "")

    @property
    def resident_mebibytes(self) -> float:
        """Its resident memory."""
        return resident_bytes(self._process.pid) / 2**20

    @property
    def processor_seconds(self) -> float:
        """The time of processors that it has used, on Linux."""
        with contextlib.suppress(OSError):
            text = Path(f"/proc/{self._process.pid}/stat").read_text()
            used = text.rpartition(")")[2].split()[11:13]  # in user and in kernel mode
            return sum(map(int, used)) / os.sysconf("SC_CLK_TCK")
        return 0.0


def measured(server: Server, texts: Sequence[Sequence[str]], options: Any, clients: int) -> Any:
    """The figures of a load of `options.seconds`; times are those of `UNIT` texts."""
    used = server.processor_seconds
    outcome = put_load(f"{server.address}/embed", texts, clients, options.seconds)
    used = server.processor_seconds - used
    units = outcome.answered * options.batch / UNIT
    if not units:
        raise SystemExit(f"no request was answered: {dict(outcome.statuses)}")
    return {
        "seconds": outcome.seconds / units,
        "processor_seconds": used / units,
        "texts": UNIT,
        **outcome.figures(),
    }
