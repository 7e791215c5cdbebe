"""A teacher's scores for all training examples, computed once, and optionally kept on the disk.

They serve several runs, and teachers with another tokenizer, which cannot read the student's rows.

    DIRECTORY/DIGEST/scores.npy  float32 [n, …], the scores of each example for the longest row

The digest is of the data, the tokenizer and the teacher. Each directory has a journal, see
`files.journal`.
"""

import functools
import hashlib
import json
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from bert_jax.distillation.teacher import Teacher
from bert_jax.errors import OptionError
from bert_jax.files import Journal, as_path, check_directory, is_remote
from bert_jax.models.attention_inputs import MASK_VALUE
from bert_jax.models.encoder import abstract_params
from bert_jax.models.encoder_with_head import apply_model
from bert_jax.models.parameter_sharding import gathered
from bert_jax.process import say
from bert_jax.sharding.hosts import batch_share, fetch, from_all_hosts, is_main_host, to_global
from bert_jax.sharding.rules import on_mesh
from bert_jax.tasks.base.task import FrozenInputs

_SCORES = "scores.npy"


class TeacherScores(FrozenInputs):
    """The scores of one teacher for the training examples of one task; no parameters in a step."""

    def __init__(self, task: Any, teacher: Teacher, directory: str) -> None:
        """Nothing is computed before `load`.

        Args:
            task: the `LabelledTask` that makes the teacher's batches; it is `Distillable`.
            teacher: the teacher.
            directory: directory on this machine, created if missing; "": the scores are kept in
                memory only.

        Raises:
            OptionError: the directory is in a bucket.
        """
        if directory and is_remote(directory):
            rule = "give a directory on this machine, from which scores are mapped into memory"
            raise OptionError("distillation.keep_logits", directory, rule)
        self._task, self._teacher, self._directory = task, teacher, directory
        self._scores: np.ndarray | None = None

    def load(self, mesh: Mesh) -> None:
        """Maps the scores into memory for `batch_scores`; there are no parameters.

        They are computed first if the disk does not have them. All hosts call it.

        Raises:
            UserError: they cannot be read or written.
        """
        if not self._directory:
            self._scores = self._computed(mesh)
            return
        directory = as_path(self._directory) / _digest(self._request)
        check_directory(directory, [_SCORES])
        journal = Journal(directory, "scores", lambda: self._request)
        if _SCORES in journal.files:
            journal.check(_SCORES)
        if not all(from_all_hosts(_SCORES in journal.files)):
            scores = self._computed(mesh)
            with journal.whole(_SCORES) as file:
                np.save(file, scores)
        try:
            self._scores = np.load(directory / _SCORES, mmap_mode="r")
        except (OSError, ValueError) as error:
            raise journal.damaged(_SCORES) from error
        expected = len(self._task.batches.lengths), *self._shape(1, self._task.options.length)[1:]
        if (self._scores.shape, self._scores.dtype) != (expected, np.float32):
            raise journal.damaged(_SCORES)

    def batch_scores(self, examples: np.ndarray, length: int) -> np.ndarray:
        """The scores of a batch.

        Args:
            examples: int64 [B], numbers of examples; -1 for a row of padding; its scores are
                ignored.
            length: T of the batch.

        Raises:
            OptionError: the scores are not in memory: `load` was not called.
        """
        if self._scores is None:
            rule = "leave {distillation.keep_logits} out to time a step"
            raise OptionError("distillation.keep_logits", self._directory, rule)
        shape = self._shape(len(examples), length)
        return np.asarray(self._scores[_part(examples, shape)])

    def shape(self, rows: int, length: int) -> jax.ShapeDtypeStruct:
        """Shape and dtype of the scores of a batch."""
        return jax.ShapeDtypeStruct(self._shape(rows, length), np.float32)

    @functools.cached_property
    def _request(self) -> dict[str, Any]:
        """Everything that the scores depend on."""
        task = self._task
        return {
            "data": task.fingerprints()["train"],
            "tokenizer": task.tokenizer.rules_of_rows,
            "examples": task.examples_per_epoch,
            "length": task.options.length,
            "lengths": hashlib.sha256(task.batches.lengths.tobytes()).hexdigest(),
            "teacher": self._teacher.fingerprint,
        }

    def _compute(self, params: Any, batch: dict[str, jax.Array]) -> jax.Array:
        outputs = apply_model(self._teacher.module, params, self._task.inputs(batch))
        return self._task.teacher_scores(params, outputs, batch)

    @functools.lru_cache(maxsize=64)  # noqa: B019 - one object for a training
    def _shape(self, rows: int, length: int) -> tuple[int, ...]:
        batch = self._task.batches.make(np.full(rows, -1), length)
        params = abstract_params(self._teacher.module)
        return tuple(jax.eval_shape(self._compute, params, batch).shape)

    def _computed(self, mesh: Mesh) -> np.ndarray:
        """All scores; the longest examples come first: a lack of memory shows at once."""
        batches, share = self._task.batches, batch_share(mesh)
        params = self._teacher.params(mesh)
        compute = jax.jit(lambda params, batch: self._compute(gathered(mesh, params), batch))
        lengths, size = batches.lengths, self._task.options.batch_size
        order = np.argsort(-lengths, kind="stable")
        shape = len(lengths), *self._shape(1, self._task.options.length)[1:]
        # A longer row ends with padding, which cannot be chosen.
        empty = MASK_VALUE if self._task.score_kind == "classes" else 0
        scores = np.full(shape, empty, np.float32)
        if is_main_host():
            say(f"the teacher's scores of {len(order):,} rows are computed once")
        for start in range(0, len(order), size):
            chosen = order[start : start + size]
            filled = np.append(chosen, np.full(size - len(chosen), -1))
            own = np.array_split(filled, share.count)[share.index]
            rows = batches.make(own, batches.length_of(chosen))
            with on_mesh(mesh):
                computed = fetch(compute(params, to_global(mesh, rows)))[: len(chosen)]
            scores[_part(chosen, computed.shape)] = computed
        return scores


def _digest(request: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(request).encode()).hexdigest()[:32]


def _part(examples: np.ndarray, shape: tuple[int, ...]) -> Any:
    """Index of scores of this shape in the scores of all examples."""
    return (examples, *map(slice, shape[1:]))
