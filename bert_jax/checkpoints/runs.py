"""Checkpoints of a run: training state and data position together, by orbax."""

import logging
import math
import shutil
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import jax
import orbax.checkpoint as ocp
from orbax.checkpoint.checkpoint_managers import (
    AnyPreservationPolicy,
    BestN,
    LatestN,
)

from bert_jax.errors import RetryableError, UserError, first_line
from bert_jax.files import is_remote, reachable

# The metric of a checkpoint: the higher, the better.
_SCORE = "score"


def has_checkpoint(workdir: Path) -> bool:
    """Whether a run has a whole checkpoint to continue from.

    In a bucket nothing can be renamed: one that is being written has its own name already, and a
    file in it says when it is whole. A run never continues from a
    directory whose name is no number, such as a renamed one.
    """
    with reachable(workdir):
        whole = ocp.utils.checkpoint_steps_paths(workdir / "checkpoints")
        return any(path.name.isdecimal() for path in whole)


class RunCheckpoints:
    """The directory `checkpoints/` of a run.

    A checkpoint is written beside its place and renamed when it is whole, so a kill at any time
    leaves the ones before it. Writing continues in the background; only the copy from the devices
    blocks the caller.
    """

    def __init__(
        self,
        workdir: Path,
        *,
        keep: int,
        best_metric: tuple[str, bool] = ("", True),
        read_only: bool = False,
    ) -> None:
        """Opens the directory.

        Args:
            workdir: of the run.
            keep: how many of the newest checkpoints stay; the best one stays, too.
            best_metric: name, and whether higher is better; not needed to read.
            read_only: nothing is made or removed; another process may be writing.
        """
        self._metric, self._higher_is_better = best_metric
        # What orbax logs as an error also reaches us as an exception, which the user is shown.
        logging.getLogger("absl").setLevel(logging.CRITICAL)
        workdir = workdir if is_remote(workdir) else workdir.absolute()
        self._directory = workdir / "checkpoints"
        with reachable(self._directory):
            if read_only and not self._directory.is_dir():
                raise UserError(f"{self._directory} does not exist; wait for the first checkpoint")
        self._manager = ocp.CheckpointManager(
            self._directory,
            options=ocp.CheckpointManagerOptions(
                preservation_policy=AnyPreservationPolicy(
                    [
                        LatestN(keep),
                        BestN(
                            get_metric_fn=lambda metrics: metrics[_SCORE],
                            n=1,
                            keep_checkpoints_without_metrics=False,
                        ),
                    ]
                ),
                best_fn=lambda metrics: metrics[_SCORE],
                best_mode="max",
                cleanup_tmp_directories=not read_only,
                create=not read_only,
                read_only=read_only,
            ),
            item_handlers={
                # Compressing takes processors from the training, and saves a twelfth of the disk.
                "state": ocp.PyTreeCheckpointHandler(use_compression=False),
                "position": ocp.JsonCheckpointHandler(),
            },
        )
        # Whether checkpoints can be written here, and one of this object is being written.
        self._is_proven, self._is_writing = self.latest_step is not None, False

    @property
    def latest_step(self) -> int | None:
        """The newest whole checkpoint, None if there is none."""
        return self._manager.latest_step()

    @property
    def latest(self) -> str:
        """`latest_step` in words."""
        return "that of no step" if self.latest_step is None else f"that of step {self.latest_step}"

    @property
    def best_step(self) -> int | None:
        """The checkpoint with the best validation metric, the newest if none was evaluated."""
        best = self._manager.best_step()
        return self.latest_step if best is None else best

    def step_of(self, which: str) -> int:
        """The step that "latest", "best" or a number names.

        Raises:
            UserError: there is no such checkpoint.
        """
        steps = sorted(self._manager.all_steps())
        if not steps:
            raise UserError(f"{self._directory} has no checkpoint; train first")
        if which in ("latest", "best"):
            return steps[-1] if which == "latest" else self.best_step or steps[-1]
        if not which.isdecimal() or int(which) not in steps:
            raise UserError(
                f"{self._directory} has no checkpoint {which!r}; it has latest, best, "
                f"{', '.join(map(str, steps))}"
            )
        return int(which)

    def save(
        self, step: int, state: Any, position: dict[str, Any], metrics: dict[str, float]
    ) -> None:
        """Begins to write a checkpoint; `metrics` is empty if this step was not evaluated.

        One whose metric is not a number is never the best.

        Raises:
            UserError: this or the previous checkpoint could not be written.
        """
        self._check_space(state)
        value = metrics.get(self._metric, math.nan)
        score = value if self._higher_is_better else -value
        try:
            self._manager.save(
                step,
                args=ocp.args.Composite(
                    state=ocp.args.PyTreeSave(state), position=ocp.args.JsonSave(position)
                ),
                metrics=None if math.isnan(score) else {_SCORE: score},
            )
        except Exception as error:
            raise self._failure(error) from error
        # It has waited for the one before.
        self._is_proven, self._is_writing = self._is_proven or self._is_writing, True

    def wait(self) -> None:
        """Waits until what was begun is written.

        Raises:
            UserError: it could not be written.
        """
        try:
            self._manager.wait_until_finished()
            self._manager.check_for_errors()
        except Exception as error:
            raise self._failure(error) from error
        self._is_proven = self._is_proven or self._is_writing

    def restore(self, step: int, abstract: Any) -> tuple[Any, dict[str, Any]]:
        """State and position of a checkpoint, laid out on devices as `abstract` says.

        Raises:
            UserError: the checkpoint is damaged or of another model.
        """
        try:
            restored = self._manager.restore(
                step,
                args=ocp.args.Composite(
                    state=ocp.args.PyTreeRestore(
                        abstract, ocp.checkpoint_utils.construct_restore_args(abstract)
                    ),
                    position=ocp.args.JsonRestore(),
                ),
            )
        except Exception as error:
            raise self._unreadable(step, error) from error
        return restored["state"], restored["position"]

    def restore_params(self, step: int, abstract: Any) -> Any:
        """The parameters alone of a checkpoint, laid out as `abstract` says.

        Raises:
            UserError: the checkpoint is damaged or of another model.
        """
        requested = {"params": abstract}
        arguments = ocp.checkpoint_utils.construct_restore_args(requested)
        try:
            restored = self._manager.restore(
                step,
                args=ocp.args.Composite(
                    state=ocp.args.PyTreeRestore(requested, arguments, partial_restore=True)
                ),
            )
        except Exception as error:
            raise self._unreadable(step, error) from error
        return restored["state"]["params"]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # All hosts write together: after an error of one of them, the others may never come.
        if error is None or jax.process_count() == 1:
            self.close()

    def close(self) -> None:
        """Waits for the writing to end and closes the directory."""
        self.wait()
        self._manager.close()

    def _check_space(self, state: Any) -> None:
        """A disk that is full before the writing starts is found before it starts."""
        if is_remote(self._directory):
            return
        needed = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
        free = shutil.disk_usage(self._directory).free
        if free < needed:
            raise UserError(
                f"cannot write a checkpoint to {self._directory}: it takes {needed / 1e6:.0f} MB, "
                f"{free / 1e6:.0f} MB are free; the last whole one is {self.latest}; free "
                "space and run the same command again"
            )

    def _unreadable(self, step: int, error: Exception) -> UserError:
        others = "network, credentials" if is_remote(self._directory) else "disk"
        return UserError(
            f"cannot read the checkpoint {self._directory / str(step)}: {first_line(error)}; if "
            f"{others} and memory are in order, it is damaged: remove this directory to "
            "continue from the one before it"
        )

    def _failure(self, error: Exception) -> UserError:
        line = (
            f"cannot write a checkpoint to {self._directory}: {first_line(error)}; the last whole "
            f"one is {self.latest}; "
        )
        if is_remote(self._directory) and self._is_proven:
            return RetryableError(f"{line}when it can be reached, run the same command again")
        if is_remote(self._directory):
            # It may never work: a restart would compute the same steps again and again.
            return UserError(f"{line}check path, credentials and network, and run again")
        return UserError(f"{line}free space and run the same command again")
