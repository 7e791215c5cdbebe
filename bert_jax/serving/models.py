"""The models of a server, and the engines that predict tasks with them."""

import dataclasses
import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from bert_jax.errors import UserError
from bert_jax.inference.engine import Engine
from bert_jax.inference.index import Index
from bert_jax.inference.model import LoadedModel
from bert_jax.inference.predict import task_of
from bert_jax.options import keys_of
from bert_jax.serving.errors import FieldName, RequestError, from_user_error, unprocessable
from bert_jax.serving.limits import ServerLimits
from bert_jax.tasks import find_task, task_names
from bert_jax.tasks.base.predict_spec import JSONL, PredictOptions, PredictSpec
from bert_jax.tasks.base.predictor import BatchOptions, Predictor, RequestEncoder

# Engines with options of requests that are kept.
_MOST_ENGINES = 64

# The server's own, and those of files.
_SERVER_OPTIONS = (
    "batch_size",
    "max_length",
    "progress",
    "output_format",
    "label_column",
    "bad_rows",
)
_READERS = "bert_jax.data."


@dataclasses.dataclass(frozen=True, eq=False)
class ServedModel:
    """A model and the name by which requests choose it.

    Attributes:
        name: the name.
        model: the model.
        task: the task of its head, see `task_of`; "": it has none.
    """

    name: str
    model: LoadedModel

    @functools.cached_property
    def task(self) -> str:
        try:
            return task_of(self.model, None)[0]
        except UserError:
            return ""


@dataclasses.dataclass(frozen=True)
class TaskEngine:
    """A task with options, and the engine that predicts it.

    Attributes:
        spec: the task.
        options: its options.
        engine: the engine of its predictor, which requests share, see `PredictOptions.shared`.
        encoder: encodes the examples of a request with these options.
    """

    spec: PredictSpec[Any, Any]
    options: PredictOptions
    engine: Engine[Any, Any]
    encoder: RequestEncoder


class Models:
    """The models of a server, by name; the first one is the default. Threads may share it.

    Attributes:
        served: all models.
        index: documents to search; None: none.
    """

    def __init__(
        self, models: Mapping[str, LoadedModel], limits: ServerLimits, index: Index | None = None
    ) -> None:
        """Takes the models by name, and the index, whose model is loaded.

        Raises:
            OptionError: a model does not take rows of `limits.max_length` tokens.
            UserError: a model reads images.
        """
        self._options = BatchOptions(limits.batch_size, limits.max_length)
        for name, model in models.items():
            if model.description.family.reads_images:
                raise UserError(
                    f"{name}: a {model.description.class_name} reads images, and requests have "
                    "texts; give a model that reads text"
                )
            self._options.limit(model.config)  # else no task of it could be done
        self.served = [ServedModel(name, model) for name, model in models.items()]
        self.index = index
        self._limits = limits
        self._engines: OrderedDict[tuple[Any, ...], Any] = OrderedDict()
        self._lock = threading.Lock()
        if index:
            self.query_engine(None)  # its model is loaded before there are requests

    def named(self, name: str | None, task: str | None = None) -> ServedModel:
        """The model of a name, else the first one that is made for the task, or can do it.

        Args:
            name: the name; None: none is named.
            task: a task; None: any model will do, the first one if none is named.

        Raises:
            RequestError: 404: there is no model of this name; 422: none can do the task.
        """
        if name is not None:
            for served in self.served:
                if served.name == name:
                    return served
            known = ", ".join(served.name for served in self.served)
            raise RequestError(404, f"there is no model {name!r:.80}; known are {known}", "model")
        if task is None:
            return self.served[0]
        for served in self.served:
            if served.task == task:
                return served
        for served in self.served:
            if self.can(served, task):
                return served
        raise unprocessable(f"no model of this server can do {task}", "model")

    def task_engine(
        self,
        served: ServedModel,
        task: str,
        values: Mapping[str, Any] | None = None,
        max_length: int | None = None,
        name: FieldName = str,
    ) -> TaskEngine:
        """The engine of a task with some of its options; `max_length` None is the server's.

        Errors give an option the name of its field, `name`.

        Raises:
            RequestError: the model cannot do the task, or an option is wrong.
        """
        spec: PredictSpec[Any, Any] = find_task(task, "PREDICT").PREDICT
        values = dict(values or {})
        allowed = request_options(spec.options)
        for key in values:
            if key not in allowed:
                known = ", ".join(allowed)
                message = f"{key!r:.80} is no option of {task}; it has {known}"
                raise unprocessable(message, name(key))
        size = min(keys_of(spec.options)["batch_size"], self._limits.batch_size)
        max_length = max_length or self._limits.max_length
        own = {"batch_size": size, "max_length": max_length, "progress": False}
        try:
            task_of(served.model, task)
            options = spec.read_options(task, "", {**values, **own, "output_format": JSONL})
            shared = options.shared()
            length = shared.max_length or self._limits.max_length
            shared = dataclasses.replace(shared, max_length=length)
            engine = self.engine(
                served, (task, shared), lambda model, _: spec.predictor(model, shared)
            )
            if options.max_length is not None and options.max_length > engine.predictor.limit:
                engine = self.engine(  # its rows are longer than those of other requests
                    served, (task, options), lambda model, _: spec.predictor(model, options)
                )
            encoder = engine.predictor.encoder(options)
        except UserError as error:
            raise from_user_error(error, "model", name) from error
        return TaskEngine(spec, options, engine, encoder)

    def can(self, served: ServedModel, task: str, values: Mapping[str, Any] | None = None) -> bool:
        """Whether a model can do a task, with some of its options."""
        try:
            self.task_engine(served, task, values)
        except RequestError:
            return False
        return True

    def limit(self, served: ServedModel) -> int:
        """The number of tokens of a text that is not cut, in the model's own or first task."""
        for _, engine in self.default_engines(served):
            return engine.predictor.limit
        return served.model.config.max_length

    def default_engines(
        self, served: ServedModel, tasks: Collection[str] = ()
    ) -> Iterator[tuple[str, Engine[Any, Any]]]:
        """The engines of requests with default options, of the model's own task first.

        Args:
            served: the model.
            tasks: names of tasks; empty: all that the model can do.

        Yields:
            The name of a task, and an engine of it; several where their programs differ.
        """
        names = tasks or task_names("PREDICT")
        for task in sorted(names, key=lambda name: name != served.task):
            for values in find_task(task, "PREDICT").PREDICT.variants(served.model.description):
                if self.can(served, task, values):
                    yield task, self.task_engine(served, task, values).engine

    def engine(
        self,
        served: ServedModel,
        key: tuple[Any, ...],
        make: Callable[[LoadedModel, BatchOptions], Predictor[Any, Any]],
    ) -> Engine[Any, Any]:
        """The engine of a predictor that `make` makes, unless there is one of this key."""
        return self._kept((served.name, *key), lambda: make(served.model, self._options))

    def query_engine(self, prompt: str | None) -> Engine[Any, Any]:
        """The engine of the vectors of queries.

        Raises:
            UserError: there is no such prompt.
        """
        assert self.index is not None
        make = functools.partial(self.index.query_predictor, self._limits.batch_size, prompt)
        return self._kept(("", prompt), make)

    def _kept(
        self, key: tuple[Any, ...], make: Callable[[], Predictor[Any, Any]]
    ) -> Engine[Any, Any]:
        with self._lock:
            if key not in self._engines:
                predictor = make()
                predictor.most_tokens = self._limits.max_tokens
                self._engines[key] = Engine(predictor)
            self._engines.move_to_end(key)
            while len(self._engines) > _MOST_ENGINES:
                self._engines.popitem(last=False)
            return self._engines[key]


def request_options(options: type[PredictOptions]) -> list[str]:
    """The options of a task that a request may set: none of the server, none about files."""
    reader_options = {
        name
        for base in options.__mro__
        if base.__module__.startswith(_READERS) and dataclasses.is_dataclass(base)
        for name in keys_of(base)
    }
    return list(keys_of(options, {*reader_options, *_SERVER_OPTIONS}))
