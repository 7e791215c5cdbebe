"""The teacher of a distillation: a finished model, and whether it fits the task of a student."""

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import flax.linen as nn
from jax.sharding import Mesh

from bert_jax.checkpoints import model_directory
from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.checkpoints.hub import model_files, resolve
from bert_jax.errors import OptionError, UserError
from bert_jax.models.encoder import abstract_params
from bert_jax.models.execution import Execution
from bert_jax.models.head import fields_of, find_head, heads_with
from bert_jax.models.parameter_sharding import sharded_shapes
from bert_jax.tasks.base.distillable import Distillable
from bert_jax.tasks.base.labels import label_names
from bert_jax.tasks.base.model_init import ModelInit
from bert_jax.tasks.base.task import Task
from bert_jax.tokenization import Tokenizer


@dataclasses.dataclass(frozen=True)
class Teacher:
    """A finished model that a student learns from.

    Attributes:
        directory: its model directory.
        description: contents of its `config.json`.
        tokenizer: its tokenizer.
        module: the model, as the task computes it.
    """

    directory: Path
    description: ModelDescription
    tokenizer: Tokenizer
    module: nn.Module

    @classmethod
    def read(cls, path: str, task: Distillable, execution: Execution, length: int) -> "Teacher":
        """Reads a model directory without its weights.

        Args:
            path: model directory or hub id.
            task: the task of the student.
            execution: how the model is computed.
            length: maximum number of tokens of a row.

        Raises:
            UserError: it does not exist, or is a model for another task, for other labels, or for
                shorter texts.
        """
        directory = resolve(path)
        description = model_directory.load_description(directory)
        _check(path, description, task)
        tokenizer = model_directory.load_tokenizer(directory, description)
        if length > description.config.max_length:
            rule = f"the teacher {path} has {description.config.max_length} positions: lower it"
            raise OptionError("data.length", length, rule)
        return cls(directory, description, tokenizer, task.module_of(description, execution))

    def reads_rows_of(self, task: Distillable) -> bool:
        """Whether it can read the rows that the task makes for the student."""
        return self._has_tokens_of(task, with_types=bool(self.description.config.type_vocab_size))

    def makes_rows_for(self, task: Distillable) -> bool:
        """Whether the student can read the rows of the teacher: it has no token types."""
        has_types = bool(task.description.config.type_vocab_size)
        return not has_types and self._has_tokens_of(task, with_types=False)

    def _has_tokens_of(self, task: Distillable, *, with_types: bool) -> bool:
        """Whether the rows of both have the same tokens, and the same types of these."""
        if self.tokenizer.fingerprint() != task.tokenizer.fingerprint():
            return False
        kinds = (False, True) if task.reads_pairs else (False,)
        own, other = (
            [
                (part.name, part.type_id if with_types else 0)
                for pair in kinds
                for part in tokenizer.template.parts(pair=pair)
            ]
            for tokenizer in (self.tokenizer, task.tokenizer)
        )
        return own == other

    def reader(self, create: Callable[[ModelInit], Task], task: Distillable) -> Task:
        """The task with the same examples as rows of the teacher's own tokens.

        Args:
            create: makes the task of the student for another model.
            task: the task of the student.

        Raises:
            UserError: the task has scores of tokens, and the tokens differ.
        """
        if task.scores_tokens and not self.makes_rows_for(task):
            raise UserError(
                f"the teacher {self.directory} has another tokenizer than the student, and "
                "the task compares scores of tokens; "
                "give a teacher with the student's tokenizer"
            )
        module: Any = self.module
        return create(
            ModelInit(
                module.execution,
                self.description.family,
                self.tokenizer,
                self.description,
                base=self.description.config,
            )
        )

    def abstract_params(self, mesh: Mesh) -> Any:
        """Shapes, dtypes and shardings of the parameters."""
        return sharded_shapes(mesh, abstract_params(self.module))

    def params(self, mesh: Mesh) -> Any:
        """The parameters on a mesh.

        Raises:
            UserError: the files are damaged, or do not hold the whole model.
        """
        params, report = model_directory.load_params(
            self.directory, self.description, self.module, mesh=mesh
        )
        if report.new:
            rule = "give a model that was trained for this task"
            raise UserError(f"{self.directory}: {report}; {rule}")
        return params

    @functools.cached_property
    def fingerprint(self) -> str:
        """16 hex digits of SHA-256 of its files: a run continues only with the same teacher."""
        digest = hashlib.sha256()
        for file in sorted(model_files(self.directory)):
            with file.open("rb") as content:
                digest.update(hashlib.file_digest(content, "sha256").digest())
        return digest.hexdigest()[:16]


def _check(path: str, description: ModelDescription, task: Distillable) -> None:
    """Raises OptionError if a teacher's outputs cannot be compared with the student's."""
    student, head = task.description, task.description.head
    assert head is not None
    fills_masks = find_head(head).fills_masks
    its, own = fields_of(description.config), fields_of(student.config)
    differing = [key for key in find_head(head).output_keys if its[key] != own[key]]
    problems = description.problem_type, student.problem_type
    if fills_masks and its["vocab_size"] != own["vocab_size"]:
        problem = f"knows {its['vocab_size']:,} words, and the student {own['vocab_size']:,}"
        rule = "give a teacher with the student's vocabulary"
    elif description.head not in (
        heads_with("fills_masks") if fills_masks else (head, *task.teacher_heads)
    ):
        problem = f"has the head {description.head or 'no'}, and the task needs {head}"
        rule = "give a model that was trained for this task"
    elif differing:
        key = differing[0]
        problem = f"has {its[key]!r} as {key}, the student {own[key]!r}"
        rule = f"train the student with the teacher's {key}"
    elif problems[1] and problems[0] not in (None, problems[1]):
        problem = f"was trained for {problems[0]}, the student is for {problems[1]}"
        rule = "train the student for the same, or give another teacher"
    elif head in heads_with("label_kernels") and (
        labels := _different_labels(label_names(description), label_names(student))
    ):
        problem = f"{labels}; the student's labels are {', '.join(label_names(student))}"
        rule = "train the student from the teacher's directory ({init_from}), or give another"
    else:
        return
    raise OptionError("distillation.teacher", path, rule, f"the teacher {path} {problem}")


def _different_labels(teacher: Sequence[str], student: Sequence[str]) -> str:
    """How the labels of the teacher differ from the student's; "": they are the same."""
    if missing := [name for name in student if name not in teacher]:
        return f"does not know {', '.join(missing)}"
    if surplus := [name for name in teacher if name not in student]:
        return f"has labels that the data lack, {', '.join(surplus)}"
    return "" if teacher == student else f"has them in another order, {', '.join(teacher)}"
