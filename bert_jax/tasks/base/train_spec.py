"""A task of a config: its sections, and how they make a `Task`."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

import flax.linen as nn

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.data.pretraining.options import VocabularyOptions
from bert_jax.models.execution import Execution
from bert_jax.tasks.base.model_init import ModelInit
from bert_jax.tasks.base.task import Task
from bert_jax.training_options import OptimizerOptions, TrainOptions

Data = TypeVar("Data")
DataRead = TypeVar("DataRead", covariant=True)
Section = TypeVar("Section")


@dataclasses.dataclass(frozen=True)
class TaskConfig(Generic[DataRead]):
    """The part of a config that a task reads.

    Attributes:
        data, train, optimizer: the sections of these names.
        others: the sections that only this task has, see `TrainSpec.sections`.
        tokenizer_path: key `tokenizer.path`.
        seed: key `seed`.
    """

    data: DataRead
    train: TrainOptions
    optimizer: OptimizerOptions
    others: tuple[Any, ...] = ()
    tokenizer_path: str = ""
    seed: int = 0

    def section(self, cls: type[Section]) -> Section:
        """The section of a class among `others`."""
        return next(section for section in self.others if isinstance(section, cls))


@dataclasses.dataclass(frozen=True)
class TrainedPart:
    """A model that a training holds beside the one that it exports.

    Attributes:
        description: contents of its model directory.
        module: the module that is trained.
        params: the parameters of the trained `module` → its parameters.
        sides: the models of queries or of documents that belong to it, see `Model.sides`.
    """

    description: ModelDescription
    module: nn.Module
    params: Callable[[Any], Any]
    sides: Mapping[str, "TrainedPart"] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class TrainSpec(Generic[Data]):
    """What a config trains and evaluates: the attribute `TRAIN` of a task's module.

    Attributes:
        data: dataclass of the section `data`. Its fields, except `seed`, are the keys; it refuses
            values that are out of range.
        create: makes the task of a config for a model, with its data.
        sections: dataclasses of other sections that only this task has, by name; the fields of
            section `tokenizer` are keys beside `tokenizer.path`.
        defaults: defaults of the task for keys of the sections `optimizer` and `train`.
        prepare_options: options of the corpus that `bert-jax prepare` makes; None: the files are
            read as they are.
        vocabulary: training texts and options of the vocabulary that `bert-jax prepare` makes;
            None: it is made with a corpus, or a model has one.
        create_without_data: makes the task with synthetic data of the same shapes, to plan or time
            a step; None: the data are needed.
        has_data: whether the config names the data.
        export_notes: lines about parts of the trained model that the exported one lacks.
        parts: further models that can be exported, by name: each from the config, the description
            of the exported model, and how models are computed.
    """

    data: type[Data]
    create: Callable[[TaskConfig[Data], ModelInit], Task]
    sections: Mapping[str, type] = dataclasses.field(default_factory=dict)
    defaults: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    prepare_options: Callable[[TaskConfig[Data]], Any] | None = None
    vocabulary: Callable[[TaskConfig[Data]], tuple[Iterable[str], VocabularyOptions]] | None = None
    create_without_data: Callable[[TaskConfig[Data], ModelInit], Task] | None = None
    has_data: Callable[[Data], bool] = lambda data: True
    export_notes: Callable[[Data], tuple[str, ...]] = lambda data: ()
    parts: Mapping[str, Callable[[TaskConfig[Data], ModelDescription, Execution], TrainedPart]] = (
        dataclasses.field(default_factory=dict)
    )
