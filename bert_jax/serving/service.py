"""What the routes ask: predictions of examples, each with its tokens and cuts."""

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from bert_jax.errors import OptionError, UserError
from bert_jax.inference.engine import Engine
from bert_jax.process import say
from bert_jax.serving.errors import RequestError, from_user_error, too_large, unprocessable
from bert_jax.serving.limits import ServerLimits
from bert_jax.serving.metrics import Metrics
from bert_jax.serving.models import Models
from bert_jax.serving.queue import Queue
from bert_jax.tasks.base.predictor import EncodedExample, ExampleError, RequestEncoder

Result = TypeVar("Result")

# Threads that encode texts, and that write answers as JSON.
_THREADS = 2
# Numbers of an answer, some 200 MB as JSON.
_MOST_VALUES = 20_000_000


@dataclasses.dataclass(frozen=True)
class Predicted:
    """The predictions of the examples of a request.

    Attributes:
        predictions: one for each example.
        tokens: number of tokens that the model has read, without padding.
        cut: number of texts that were longer than the limit.
    """

    predictions: list[Any]
    tokens: int = 0
    cut: int = 0


class Service:
    """The models of a server, its queue and its limits.

    Attributes:
        models: the models.
        limits: the limits.
        metrics: what is counted.
        is_stopping: whether the server ends; set by the server.
    """

    def __init__(self, models: Models, limits: ServerLimits) -> None:
        self.models, self.limits, self.metrics = models, limits, Metrics()
        self.is_stopping = False
        self._queue = Queue(
            batch_size=limits.batch_size, max_waiting=limits.max_waiting, metrics=self.metrics
        )
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="bert-jax-encode")

    def warm_up(
        self, tasks: Collection[str] = (), stopped: Callable[[], bool] = lambda: False
    ) -> None:
        """Compiles the programs of requests with default options, in all shapes.

        Args:
            tasks: names of tasks; empty: all that each model can do.
            stopped: whether to stop; called before each shape.
        """
        engines = [
            (f"{served.name}: compiling {task}", engine)
            for served in self.models.served
            for task, engine in self.models.default_engines(served, tasks)
        ]
        if self.models.index:
            engines.append(
                ("index: compiling the vectors of queries", self.models.query_engine(None))
            )
        for number, (what, engine) in enumerate(engines, 1):
            shapes = engine.shapes()
            if not stopped():
                say(f"{what} for {len(shapes)} shapes, {number} of {len(engines)}")
            for shape in shapes:
                if stopped():
                    return
                engine.compile(*shape)

    def close(self) -> None:
        """Computes what waits, and ends the threads."""
        self._queue.close()
        self._threads.shutdown()

    async def in_thread(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """The result of a function that takes long, such as one that tokenises."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, function, *arguments)

    def check_count(self, count: int, field: str) -> None:
        """Refuses more texts than a request may have."""
        if count > (most := self.limits.max_texts):
            raise too_large(f"{field}: {count} texts; send at most {most}", field)

    def check_tokens(self, count: int, field: str) -> None:
        """Refuses more tokens than a request may have."""
        if count > (most := self.limits.max_tokens):
            raise too_large(f"{field}: {count:,} tokens; send at most {most:,}", field)

    @contextlib.contextmanager
    def admitted(self, count: int, field: str) -> Iterator[None]:
        """Counts the texts of a request as waiting, unless there are too many; see `predict`."""
        self.check_count(count, field)
        with self._queue.admitted(count):
            yield

    async def predict(
        self,
        engine: Engine[Any, Any],
        examples: Sequence[Any],
        *,
        field: str = "inputs",
        places: Sequence[str] | None = None,
        truncate: bool = True,
        encoder: RequestEncoder | None = None,
    ) -> Predicted:
        """The predictions of examples, which are computed with those of other requests.

        Args:
            engine: the engine of a predictor.
            examples: the examples.
            field: the field of the request that has them, for errors.
            places: the place of each in the request; None: `field` is their list.
            truncate: whether a text that is too long is cut; else it is refused.
            encoder: makes the rows of the examples; None: the predictor does, with its own options.

        Raises:
            RequestError: 413: there are too many texts or tokens, a text is too long, or the answer
                would be; 422: an example cannot be predicted; 424: the computation fails; 429: too
                many examples wait; 503: the server stops.
        """
        examples = list(examples)
        if not examples:
            return Predicted([])
        encoder = encoder or RequestEncoder(engine.predictor.encode, engine.predictor.text_limit)
        with self.admitted(len(examples), field):
            try:
                encoded = await self.in_thread(encoder.encode, examples)
            except UserError as error:
                raise from_user_error(error, field) from error
            limit = None if truncate else encoder.text_limit
            valid = self._checked(encoded, engine, field, places, limit)
            future = self._queue.submit(engine.predict_encoded, examples, valid)
        tokens = sum(len(row) for each in valid for row in each.rows)
        cut = sum(each.counts.cut for each in valid)
        self.metrics.tokens.inc(tokens)
        self.metrics.cut.inc(cut)
        try:
            # If this is cancelled, so is the job in the queue.
            predictions = await asyncio.wrap_future(future)
        except UserError as error:
            raise RequestError(424, str(error)) from error
        for index, each in enumerate(predictions):
            if isinstance(each, ExampleError):
                name = _name(index, field, places)
                raise RequestError(424, f"{name}: {each.message}", name)
        return Predicted(predictions, tokens, cut)

    async def call(self, function: Callable[[], Result], field: str) -> Result:
        """The result of a function that computes with a model, when it is its turn in the queue.

        For errors see `predict`.
        """
        try:
            (result,) = await asyncio.wrap_future(self._queue.call(function))
        except (OptionError, ExampleError) as error:
            raise from_user_error(error, field) from error
        except UserError as error:
            raise RequestError(424, str(error)) from error
        return result

    def _checked(
        self,
        encoded: Sequence[Any],
        engine: Engine[Any, Any],
        field: str,
        places: Sequence[str] | None,
        text_limit: int | None,
    ) -> list[EncodedExample]:
        """The examples, none of which is an error, and which together are not too large.

        With `text_limit`, the limit of a text, none was cut.
        """
        valid: list[EncodedExample] = []
        for index, each in enumerate(encoded):
            name = _name(index, field, places)
            if isinstance(each, ExampleError):
                raise unprocessable(f"{name}: {each.message}", name)
            if each.counts.cut and text_limit is not None:
                rule = "shorten it, or set truncate to true"
                raise too_large(f"{name}: the text has more than {text_limit} tokens; {rule}", name)
            valid.append(each)
        lengths = [len(row) for each in valid for row in each.rows]
        self.check_tokens(sum(lengths), field)
        if (values := sum(map(engine.predictor.output_values, lengths))) > _MOST_VALUES:
            rule = f"at most {_MOST_VALUES:,} are sent: give fewer or shorter texts, or layers"
            raise too_large(f"{field}: the answer has {values:,} values; {rule}", field)
        return valid


def _name(index: int, field: str, places: Sequence[str] | None) -> str:
    """The place of an example in a request."""
    return places[index] if places else f"{field}[{index}]"
