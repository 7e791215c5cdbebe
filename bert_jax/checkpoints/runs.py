"""Checkpoints of a run: training state and data position together, by orbax."""

import logging
import math
import operator
import shutil
from pathlib import Path
from typing import Any, Self

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp
from orbax.checkpoint.checkpoint_managers import AnyPreservationPolicy, BestN

from bert_jax.checkpoints.checksums import checksums
from bert_jax.checkpoints.late_errors import hide_late_errors
from bert_jax.checkpoints.newest import Newest
from bert_jax.errors import RetryableError, UserError, first_line
from bert_jax.files import (
    check_locks,
    is_remote,
    is_there,
    reachable,
    read_json_object,
    regular_files_below,
    remove,
)
from bert_jax.process import say
from bert_jax.sharding.hosts import is_main_host

# The metric of a checkpoint, with its sign set so that higher is better.
_SCORE = "score"

# What every complete checkpoint has.
_FILES = (
    *("_CHECKPOINT_METADATA", "checksums/metadata", "position/metadata"),
    *("state/_METADATA", "state/manifest.ocdbt"),
)

# The directory in `checkpoints/` of checkpoints that are being removed.
_REMOVED = "removed"


def newest_step(workdir: Path) -> int | None:
    """The step of the newest complete checkpoint of a run, None if there is none to continue from.

    A bucket has no rename: an incomplete checkpoint already has its final name, and a file in it
    marks it as complete. A run never continues from a directory with a name that is not a number,
    such as a renamed one.
    """
    with reachable(workdir):
        return max(map(_step, _finished(workdir / "checkpoints")), default=None)


def _finished(directory: Path) -> list[Path]:
    """The complete checkpoints, by step."""
    paths = ocp.utils.checkpoint_steps_paths(directory) if directory.is_dir() else []
    return sorted((path for path in paths if path.name.isdecimal()), key=_step)


def _step(path: Path) -> int:
    return int(path.name)


class RunCheckpoints:
    """The directory `checkpoints/` of a run.

    A checkpoint is written under a temporary name and renamed when it is complete, so a kill at any
    time leaves earlier checkpoints intact; on a local disk, an expired checkpoint is renamed before
    its files are removed. Writing continues in the background; the copy from the devices
    and the checksums block the caller.
    """

    def __init__(
        self,
        workdir: Path,
        *,
        keep: int,
        every: int = 0,
        best_metric: tuple[str, bool] = ("", True),
        read_only: bool = False,
    ) -> None:
        """Opens the directory.

        Args:
            workdir: directory of the run.
            keep: number of newest checkpoints kept, in addition to the best.
            every: interval of the checkpoints that count as newest, see `Newest`; 0: all do.
            best_metric: name of the metric, and whether higher is better; not needed to read.
            read_only: whether nothing is created or removed; another process may be writing.

        Raises:
            UserError: there is no directory to read, it cannot be created, or a checkpoint is
                incomplete or has something in it that is not a regular file.
        """
        self._metric, self._higher_is_better = best_metric
        # orbax also raises the errors that it logs, and users see the exception.
        logging.getLogger("absl").setLevel(logging.CRITICAL)
        hide_late_errors()
        workdir = workdir if is_remote(workdir) else workdir.absolute()
        if not read_only and "[" in str(workdir):  # orbax takes it for a pattern of names
            problem = "orbax writes no complete checkpoint below a directory with [ in its name"
            raise UserError(f"{workdir}: {problem}; use another --workdir")
        self._directory, self._read_only = workdir / "checkpoints", read_only
        self._keep, self._every = keep, every
        with reachable(self._directory):
            # In this order: another host may create the directory in between.
            exists = not is_remote(workdir) and is_there(self._directory)
            if not self._directory.is_dir():
                if exists:
                    raise UserError(f"{self._directory} is not a directory; move it away")
                if read_only:
                    problem = "does not exist; wait for the first checkpoint"
                    raise UserError(f"{self._directory} {problem}")
            self._check_files()
            self._empty_removed()
            self._manager = self._make_manager()
        # Whether checkpoints can be written, and whether this object is writing one.
        self._is_proven, self._is_writing = self.latest_step is not None, False

    def _make_manager(self) -> ocp.CheckpointManager:
        """Makes the manager of orbax, which reads the metrics of all checkpoints at once."""
        read_only, score = self._read_only, operator.itemgetter(_SCORE)
        best = BestN(get_metric_fn=score, n=1, keep_checkpoints_without_metrics=False)
        try:
            return ocp.CheckpointManager(
                self._directory,
                options=ocp.CheckpointManagerOptions(
                    preservation_policy=AnyPreservationPolicy(
                        [Newest(self._keep, self._every), best]
                    ),
                    best_fn=score,
                    best_mode="max",
                    cleanup_tmp_directories=not read_only,
                    create=not read_only,
                    read_only=read_only,
                    todelete_subdir=None if is_remote(self._directory) else _REMOVED,
                ),
                item_handlers={
                    # Compression saves only a twelfth of the disk, but slows the training down.
                    "state": ocp.PyTreeCheckpointHandler(use_compression=False),
                    "position": ocp.JsonCheckpointHandler(),
                    "checksums": ocp.JsonCheckpointHandler(),
                },
            )
        except (ValueError, LookupError, OSError) as error:
            raise self._not_opened(error) from error

    @property
    def latest_step(self) -> int | None:
        """The newest complete checkpoint, None if there is none."""
        return self._manager.latest_step()

    def latest(self, name: str) -> str:
        """`latest_step` in words, with a name for the checkpoint."""
        if self.latest_step is None:
            return "there is no checkpoint yet"
        return f"the last {name} is from step {self.latest_step}"

    @property
    def best_step(self) -> int | None:
        """The checkpoint with the best validation metric, the newest if none was evaluated."""
        best = self._manager.best_step()
        return self.latest_step if best is None else best

    def step_of(self, which: str) -> int:
        """The step for "latest", "best" or a number.

        Raises:
            UserError: the checkpoint does not exist.
        """
        steps = sorted(self._manager.all_steps())
        if not steps:
            raise UserError(f"{self._directory} has no checkpoint; train first")
        if which == "latest":
            return steps[-1]
        if which == "best":
            for step in steps:
                self._verify_score(step)
            return self.best_step or steps[-1]
        if not which.isdecimal() or int(which) not in steps:
            raise UserError(
                f"{self._directory} has no checkpoint {which!r}; it has latest, best, "
                f"{', '.join(map(str, steps))}"
            )
        return int(which)

    def save(
        self, step: int, state: Any, position: dict[str, Any], metrics: dict[str, float]
    ) -> None:
        """Starts to write a checkpoint; `metrics` is empty if this step was not evaluated.

        A checkpoint with the metric NaN is never the best.

        Raises:
            UserError: this or the previous checkpoint could not be written, or another process
                has taken over the run.
        """
        check_locks()
        self.wait()
        self._check_space(state)
        value = metrics.get(self._metric, math.nan)
        score = None if math.isnan(value) else value if self._higher_is_better else -value
        try:
            self._manager.save(
                step,
                args=ocp.args.Composite(
                    state=ocp.args.PyTreeSave(state),
                    position=ocp.args.JsonSave(position),
                    checksums=ocp.args.JsonSave(
                        {"arrays": checksums(state), "position": position, _SCORE: score}
                    ),
                ),
                metrics=None if score is None else {_SCORE: score},
            )
        except Exception as error:
            raise self._failure(error) from error
        self._is_writing = True

    def wait(self) -> None:
        """Waits until the checkpoint being saved is written.

        Raises:
            UserError: the checkpoint could not be written.
        """
        try:
            self._manager.wait_until_finished()
            self._manager.check_for_errors()
        except Exception as error:
            raise self._failure(error) from error
        self._is_proven = self._is_proven or self._is_writing
        self._empty_removed()

    def restore(self, step: int, abstract: Any) -> tuple[Any, dict[str, Any]]:
        """State and position of a checkpoint, placed on devices like `abstract`.

        Raises:
            UserError: the checkpoint is damaged or belongs to another model.
        """
        restored = self._restored(step, abstract)
        if restored["position"] != restored["checksums"]["position"]:
            raise self._unreadable(step, "its position differs from the copy of it")
        return restored["state"], restored["position"]

    def restore_params(self, step: int, abstract: Any, *, average: int = 1) -> Any:
        """Only the parameters of a checkpoint, placed on devices like `abstract`.

        Args:
            step: step of the checkpoint.
            abstract: shapes, dtypes and shardings.
            average: N; the mean of the newest N checkpoints up to this step, in float32, or of all
                if there are fewer, which a line on stderr says.

        Raises:
            UserError: a checkpoint is damaged or belongs to another model.
        """
        steps = sorted(each for each in self._manager.all_steps() if each <= step)
        steps = Newest(average, self._every).among(steps)
        if len(steps) < average and is_main_host():
            there = ", ".join(map(str, steps))
            say(f"warning: of {average} checkpoints to average, there are those of steps {there}")
        total = self._params(steps[0], abstract)
        for each in steps[1:]:
            total = jax.tree.map(jnp.add, total, self._params(each, abstract))
        return total if average == 1 else jax.tree.map(lambda value: value / len(steps), total)

    def _params(self, step: int, abstract: Any) -> Any:
        return self._restored(step, {"params": abstract}, partial=True)["state"]["params"]

    def _restored(self, step: int, abstract: Any, *, partial: bool = False) -> dict[str, Any]:
        arguments = ocp.checkpoint_utils.construct_restore_args(abstract)
        try:
            restored: dict[str, Any] = self._manager.restore(
                step,
                args=ocp.args.Composite(
                    state=ocp.args.PyTreeRestore(abstract, arguments, partial_restore=partial),
                    position=ocp.args.JsonRestore(),
                    checksums=ocp.args.JsonRestore(),
                ),
            )
        except Exception as error:
            raise self._unreadable(step, _reason(error)) from error
        self._verify(step, restored["state"], restored["checksums"])
        return restored

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # All hosts write together: after an error on one host, the rest may never arrive.
        if kind is None or jax.process_count() == 1:
            self.close()

    def close(self) -> None:
        """Waits until writing has finished, and closes the directory.

        Expired checkpoints are removed; they exist only after a removal that failed, or with a
        lower `keep` than before.

        Raises:
            UserError: the checkpoint could not be written, or an old one not be removed.
        """
        self.wait()
        if not self._read_only:
            steps = sorted(self._manager.all_steps())
            try:
                for step in sorted({*steps} - {*Newest(self._keep, self._every).among(steps)}):
                    if step != self._manager.best_step():
                        self._manager.delete(step)
            except Exception as error:
                raise self._failure(error) from error
            self._empty_removed()
        self._manager.close()

    def _check_files(self) -> None:
        """Raises UserError for a checkpoint that is incomplete, or that orbax would wait for.

        A bucket has no rename: the remainder of an old checkpoint after an interrupted removal is
        removed now.
        """
        is_bucket = is_remote(self._directory)
        paths = _finished(self._directory)
        if not is_bucket and self._directory.is_dir():  # also names of something else
            paths = sorted(self._directory.glob("[0-9]*"))
            paths = [path for path in paths if path.name.isdecimal()]
        for path in paths:
            remedy = f"remove {path} to continue with the other checkpoints"
            names = regular_files_below(path, remedy=remedy)
            missing = [name for name in _FILES if name not in names]
            if not missing or not path.exists():  # removed by the process that writes the run
                continue
            if not is_bucket or path == paths[-1]:
                raise UserError(f"{path} is incomplete: it has no {missing[0]}; {remedy}")
            if not self._read_only and jax.process_index() == 0:
                remove(path)

    def _empty_removed(self) -> None:
        """Removes the checkpoints that are no longer kept."""
        if not (self._read_only or is_remote(self._directory)) and jax.process_index() == 0:
            remove(self._directory / _REMOVED)

    def _check_space(self, state: Any) -> None:
        """Raises UserError before writing starts if the disk has too little free space."""
        if is_remote(self._directory):
            return
        needed = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
        free = shutil.disk_usage(self._directory).free
        if free < needed:
            raise UserError(
                f"cannot write a checkpoint to {self._directory}: it takes {needed / 1e6:.0f} MB, "
                f"{free / 1e6:.0f} MB are free; {self.latest('complete one')}; free "
                "space and run the same command again"
            )

    def _verify(self, step: int, tree: Any, expected: dict[str, Any]) -> None:
        """Raises UserError if an array is missing, or its checksum differs."""
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
            if not isinstance(leaf, jax.Array):
                name = jax.tree_util.keystr(path, simple=True, separator="/")
                raise self._unreadable(step, f"it has no array {name}")
        for name, value in checksums(tree).items():
            if value != expected["arrays"].get(name):
                raise self._unreadable(step, f"the array {name} has another checksum")

    def _verify_score(self, step: int) -> None:
        """Raises UserError if the metric that chooses the best checkpoint was changed."""
        try:
            args = ocp.args.Composite(checksums=ocp.args.JsonRestore())
            expected = self._manager.restore(step, args=args)["checksums"][_SCORE]
            actual = (self._manager.metrics(step) or {}).get(_SCORE)
        except Exception as error:
            raise self._unreadable(step, _reason(error)) from error
        if actual != expected:
            raise self._unreadable(step, "its metric differs from the copy of it")

    def _not_opened(self, error: Exception) -> UserError:
        """The error for a checkpoint with unreadable metrics, else for the whole directory."""
        for path in sorted(self._directory.glob("*/metrics/metrics")):
            try:
                float(read_json_object(path)[_SCORE])
            except (UserError, ValueError, LookupError, TypeError, OverflowError):
                return UserError(
                    f"{path} is damaged: remove {path.parents[1]} to continue with the other "
                    "checkpoints"
                )
        return UserError(
            f"{self._directory} cannot be opened: {first_line(error)}; check the disk and run again"
        )

    def _unreadable(self, step: int, problem: str) -> UserError:
        others = "network, credentials" if is_remote(self._directory) else "disk"
        rest = sorted({*self._manager.all_steps()} - {step})
        remedy = f"continue from step {rest[-1]}" if rest else "start again"
        return UserError(
            f"cannot read the checkpoint {self._directory / str(step)}: {problem}; if {others} and "
            f"memory are in order, it is damaged: remove this directory to {remedy}"
        )

    def _failure(self, error: Exception) -> UserError:
        line = (
            f"cannot write a checkpoint to {self._directory}: {first_line(error)}; "
            f"{self.latest('complete one')}; "
        )
        if is_remote(self._directory) and self._is_proven:
            return RetryableError(f"{line}when it can be reached, run the same command again")
        if is_remote(self._directory):
            # It may never succeed: a restart would compute the same steps again and again.
            return UserError(f"{line}check path, credentials and network, and run again")
        return UserError(f"{line}free space and run the same command again")


def _reason(error: BaseException) -> str:
    """The message of TensorStore, if orbax has put the address of an object into its own."""
    return first_line(error.__cause__ or error)
