"""Checkpoints of a run, with a state of three numbers."""

import gc
import os
import random
import re
import resource
import shutil
import sys
import time
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.checkpoints import runs
from bert_jax.checkpoints.checksums import checksums
from bert_jax.checkpoints.runs import RunCheckpoints, newest_step
from bert_jax.errors import RetryableError, UserError
from bert_jax.files import as_path


def state_of(step: int):
    return {
        "params": {"kernel": jnp.arange(3.0) + step},
        "moments": {"kernel": jnp.arange(3.0) * step},
        "step": jnp.int32(step),
    }


def shapes_of(state):
    """Shapes and shardings of a state on one device."""
    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding), state
    )


@pytest.fixture(scope="module")
def abstract():
    return shapes_of(state_of(0))


@pytest.fixture
def open_run(tmp_path):
    """Opens the checkpoints of one work directory; closes them at the end."""
    opened = []

    def make(keep=2, best_metric=("loss", False), every=0) -> RunCheckpoints:
        opened.append(RunCheckpoints(tmp_path, keep=keep, every=every, best_metric=best_metric))
        return opened[-1]

    yield make
    for checkpoints in opened:
        checkpoints.close()


def save(checkpoints: RunCheckpoints, metrics: dict[int, float | None], name="loss") -> None:
    """Saves steps with their validation metric, None for a step that was not evaluated."""
    for step, value in metrics.items():
        metrics_of_step = {} if value is None else {name: value, "other": 0.0}
        checkpoints.save(step, state_of(step), {"next_example": 8 * step}, metrics_of_step)
    checkpoints.wait()


def steps_of(tmp_path) -> list[int]:
    return sorted(int(path.name) for path in (tmp_path / "checkpoints").iterdir())


def test_state_and_position_come_back_to_the_bit(open_run, abstract):
    checkpoints = open_run()
    save(checkpoints, {3: None})
    state, position = open_run().restore(3, abstract)
    expected = state_of(3)
    assert jax.tree.structure(state) == jax.tree.structure(expected)
    for array, saved in zip(*map(jax.tree.leaves, (state, expected)), strict=True):
        assert array.dtype == saved.dtype
        assert np.asarray(array).tobytes() == np.asarray(saved).tobytes()
    assert position == {"next_example": 24}
    assert open_run().restore_params(3, abstract["params"])["kernel"].tolist() == [3.0, 4.0, 5.0]


@pytest.mark.parametrize(
    ("keep", "metric", "values", "kept", "best"),
    [
        (2, ("loss", False), {1: 5.0, 2: 3.0, 3: 4.0, 4: 4.5, 5: 6.0}, [2, 4, 5], 2),
        (1, ("accuracy", True), {1: 0.2, 2: 0.8, 3: 0.5, 4: 0.1}, [2, 4], 2),
        (1, ("loss", False), {1: None, 2: 3.0, 3: None, 4: None}, [2, 4], 2),
        (2, ("loss", False), {1: None, 2: None, 3: None}, [2, 3], 3),
    ],
)
def test_the_newest_and_the_best_are_kept(open_run, tmp_path, keep, metric, values, kept, best):
    checkpoints = open_run(keep, metric)
    save(checkpoints, values, metric[0])
    assert steps_of(tmp_path) == kept
    for each in (checkpoints, open_run(keep, metric)):
        last = max(values)
        assert (each.latest_step, each.best_step) == (last, best)
        steps = [each.step_of(name) for name in ("latest", "best", str(last))]
        assert steps == [last, best, last]


def test_a_checkpoint_between_the_regular_ones_is_kept_only_as_the_newest(open_run, tmp_path):
    checkpoints = open_run(keep=2, every=10)
    save(checkpoints, {10: None, 20: None, 27: None})
    assert steps_of(tmp_path) == [20, 27]
    checkpoints = open_run(keep=3, every=10)
    save(checkpoints, {30: None, 33: None})
    assert steps_of(tmp_path) == [20, 30, 33]
    open_run(keep=1, every=10).close()
    assert steps_of(tmp_path) == [33]


def test_the_mean_of_the_newest_checkpoints(open_run, abstract, capsys):
    checkpoints = open_run(keep=9, every=10)
    save(checkpoints, dict.fromkeys([10, 20, 27, 30, 40, 45]))

    def mean(step, average):
        kernel = checkpoints.restore_params(step, abstract["params"], average=average)["kernel"]
        assert kernel.dtype == jnp.float32
        return kernel.tolist()

    # A kernel is 0, 1, 2 and the number of the step.
    assert mean(45, 1) == [45.0, 46.0, 47.0]
    assert mean(45, 2) == [42.5, 43.5, 44.5]
    assert mean(30, 3) == [20.0, 21.0, 22.0]  # without 27
    assert capsys.readouterr().err == ""
    assert mean(20, 3) == [15.0, 16.0, 17.0]
    assert "warning: of 3 checkpoints to average, there are those of steps 10, 20" in (
        capsys.readouterr().err
    )


def test_names_of_steps_that_do_not_exist(open_run):
    checkpoints = open_run()
    assert checkpoints.latest_step is None
    assert checkpoints.latest("one") == "there is no checkpoint yet"
    with pytest.raises(UserError, match="has no checkpoint; train first"):
        checkpoints.step_of("latest")
    save(checkpoints, {1: None, 2: None})
    assert checkpoints.latest("one") == "the last one is from step 2"
    for name in ("3", "-1", "newest", "1.0"):
        with pytest.raises(UserError, match=f"has no checkpoint '{name}'; it has latest, best, 1"):
            checkpoints.step_of(name)


def test_incomplete_and_renamed_directories_are_ignored(open_run, tmp_path):
    save(open_run(), {1: None})
    directory = tmp_path / "checkpoints" / "1"
    shutil.copytree(directory, directory.with_name("2.orbax-checkpoint-tmp-1"))
    assert open_run().latest_step == newest_step(tmp_path) == 1
    directory.rename(directory.with_name("old_1"))
    assert newest_step(tmp_path) is None
    assert open_run().latest_step is None


def test_a_name_that_orbax_takes_for_a_pattern(tmp_path):
    with pytest.raises(UserError, match=r"a\[b\]: orbax writes no .* use another --workdir"):
        RunCheckpoints(tmp_path / "a[b]", keep=1)


def test_checksums_by_hand():
    tree = {"a": {"b": jnp.array([[1, 2], [3, 4]], jnp.int32)}, "c": jnp.float32(1.0)}
    # 1 · 1 + 2 · 3 + 3 · 5 + 4 · 7, and the bits of 1.0
    assert checksums(tree) == {"a/b": 50, "c": 0x3F800000}
    assert checksums({"a": jnp.array([-1, 0], jnp.int8)}) == {"a": 255}
    array = np.random.default_rng(0).normal(size=(3, 4, 5)).astype(np.float32)
    words = array.view(np.uint32).ravel().tolist()
    expected = sum(word * (2 * index + 1) for index, word in enumerate(words)) % 2**32
    assert checksums({"a": jnp.asarray(array)}) == {"a": expected}


FILES = [
    *("_CHECKPOINT_METADATA", "metrics/metrics", "position/metadata", "checksums/metadata"),
    *("state/_METADATA", "state/_sharding", "state/manifest.ocdbt"),
    *("state/d/*", "state/ocdbt.process_0/d/*", "state/ocdbt.process_0/manifest.ocdbt"),
]


@pytest.mark.parametrize("damage", ["remove", "half", "flip 0", "flip 1", "flip 2"])
def test_a_damaged_file_is_noticed_or_harmless(open_run, abstract, tmp_path, damage):
    save(open_run(), {1: 2.0, 2: 1.0})
    directory = tmp_path / "checkpoints" / "2"
    kept = tmp_path / "kept"
    shutil.copytree(directory, kept)
    expected = [leaf.tobytes() for leaf in map(np.asarray, jax.tree.leaves(state_of(2)))]
    for path in (path for name in FILES for path in kept.glob(name) if path.is_file()):
        content = bytearray(path.read_bytes())
        target = directory / path.relative_to(kept)
        if damage == "remove":
            target.unlink()
        elif damage == "half":
            target.write_bytes(content[: len(content) // 2])
        else:
            bit = random.Random(damage).randrange(8 * len(content))
            content[bit // 8] ^= 1 << bit % 8
            target.write_bytes(content)
        try:
            checkpoints = open_run()
            assert checkpoints.step_of("best") == 2
            state, position = checkpoints.restore(2, abstract)
            assert [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(state)] == expected
            assert position == {"next_example": 16}
        except UserError as error:
            assert re.search("checkpoints/2.*remove", str(error))  # noqa: PT017
        shutil.copy(path, target)


@pytest.mark.parametrize(
    ("replace", "problem"),
    [
        (os.mkfifo, "{path} is a named pipe, not a regular file"),
        (lambda path: path.symlink_to("/dev/zero"), "{path} is a link to /dev/zero, which is out"),
        (lambda path: path.symlink_to(__file__), "{path} is a link to .*, which is outside of"),
        (lambda path: None, "{directory} is incomplete: it has no {name}"),
    ],
)
def test_files_that_are_no_files_are_refused_by_name(open_run, tmp_path, replace, problem):
    save(open_run(), {1: 2.0, 2: 1.0})
    directory = tmp_path / "checkpoints" / "1"  # not the newest
    for name in ("position/metadata", "_CHECKPOINT_METADATA", "state/manifest.ocdbt"):
        path = directory / name
        path.rename(tmp_path / "kept")
        replace(path)
        message = problem.format(path=path, directory=directory, name=name)
        for read_only in (False, True):
            with pytest.raises(UserError, match=f"{message}.* remove {directory} to continue with"):
                RunCheckpoints(tmp_path, keep=2, read_only=read_only)
        path.unlink(missing_ok=True)
        (tmp_path / "kept").rename(path)


def test_paths_that_are_no_checkpoints_are_refused_by_name(open_run, tmp_path):
    save(open_run(), {1: 2.0})
    os.mkfifo(tmp_path / "checkpoints" / "3")
    with pytest.raises(UserError, match="checkpoints/3 is "):
        open_run()
    (tmp_path / "checkpoints" / "3").unlink()
    metrics = tmp_path / "checkpoints" / "1" / "metrics" / "metrics"
    metrics.unlink()
    metrics.mkdir()
    with pytest.raises(UserError, match=f"{metrics} is damaged: remove "):
        open_run()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "checkpoints").write_text("")
    with pytest.raises(UserError, match="other/checkpoints is not a directory; move it away"):
        RunCheckpoints(tmp_path / "other", keep=2)


def test_a_removal_that_was_interrupted_leaves_no_checkpoint(open_run, tmp_path, monkeypatch):
    directory = tmp_path / "checkpoints"
    with monkeypatch.context() as patch:
        patch.setattr(runs, "remove", lambda path: None)  # as if the process had been killed
        save(open_run(keep=1), {1: None, 2: None})
    assert [path.name for path in (directory / "removed").iterdir()] == ["1"]
    assert newest_step(tmp_path) == 2
    with RunCheckpoints(tmp_path, keep=1, read_only=True) as checkpoints:
        assert checkpoints.latest_step == 2
        with pytest.raises(UserError, match="has no checkpoint '1'"):
            checkpoints.step_of("1")
    assert (directory / "removed").is_dir()
    open_run(keep=1)
    assert steps_of(tmp_path) == [2]


def test_checkpoints_after_a_failed_removal_are_removed_at_the_end(open_run, tmp_path):
    save(open_run(keep=9), {1: 2.0, 2: 1.0, 3: 3.0, 4: None})
    with RunCheckpoints(tmp_path, keep=1, best_metric=("loss", False), read_only=True):
        pass
    assert steps_of(tmp_path) == [1, 2, 3, 4]
    with RunCheckpoints(tmp_path, keep=1, best_metric=("loss", False)):
        assert steps_of(tmp_path) == [1, 2, 3, 4]  # the newest may turn out to be damaged
    assert steps_of(tmp_path) == [2, 4]


@pytest.mark.slow
def test_incomplete_checkpoints_in_a_bucket(bucket):
    workdir = as_path(f"{bucket}/run")
    with RunCheckpoints(workdir, keep=2) as checkpoints:
        save(checkpoints, {1: None, 2: None})
    directory = workdir / "checkpoints"
    (directory / "1" / "position" / "metadata").unlink()
    with RunCheckpoints(workdir, keep=2, read_only=True) as checkpoints:
        assert checkpoints.step_of("latest") == 2
    with RunCheckpoints(workdir, keep=2) as checkpoints:
        assert checkpoints.latest_step == 2
        assert not (directory / "1").exists()
    (directory / "2" / "state" / "_METADATA").unlink()
    with pytest.raises(UserError, match="checkpoints/2 is incomplete: it has no state/_METADATA"):
        RunCheckpoints(workdir, keep=2)
    (directory / "5" / "state").mkdir(parents=True)
    (directory / "5" / "state" / "data").write_bytes(b"half")
    assert newest_step(workdir) == 2
    (directory / "5" / "commit_success.txt").write_bytes(b"")
    assert newest_step(workdir) == 5


def test_another_host_may_create_the_directory_at_the_same_time(tmp_path, monkeypatch):
    def is_there(path):
        path.mkdir()
        return os.path.lexists(path)

    monkeypatch.setattr(runs, "is_there", is_there)
    assert RunCheckpoints(tmp_path, keep=1).latest_step is None


@pytest.fixture
def lost(monkeypatch, capfd):
    """Errors that the interpreter would print: there must be none, and nothing on stderr."""
    errors = []
    monkeypatch.setattr(sys, "unraisablehook", errors.append)
    yield errors
    assert errors == []
    assert capfd.readouterr().err == ""


def test_a_write_that_fails_is_one_error_and_nothing_else(tmp_path, lost):
    values = np.random.default_rng(0).normal(size=(16, 30_000)).astype(np.float32)
    state = {f"k{number}": jnp.asarray(row) for number, row in enumerate(values)}
    checkpoints = RunCheckpoints(tmp_path, keep=2)
    old, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))  # bytes of each file
    try:
        checkpoints.save(1, state, {"next_example": 8}, {})
        with pytest.raises(
            UserError, match="cannot write a checkpoint to .*; there is no checkpoint yet"
        ):
            checkpoints.wait()
        time.sleep(0.2)  # the other arrays are done only now
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (old, hard))
    assert lost == []
    for kind in (ValueError, KeyboardInterrupt):  # other errors are passed on
        other = types.SimpleNamespace(exc_type=kind, exc_value=kind("lost"), object=None)
        sys.unraisablehook(other)
        assert lost.pop() == other


@pytest.mark.slow
def test_a_read_that_fails_is_one_error_and_nothing_else(tmp_path, lost):
    state = {f"k{number}": jnp.arange(3000.0) * number for number in range(8)}
    with RunCheckpoints(tmp_path, keep=2) as checkpoints:
        checkpoints.save(1, state, {"next_example": 8}, {})
        checkpoints.wait()
        path = tmp_path / "checkpoints" / "1" / "state" / "array_metadatas" / "process_0"
        path.write_bytes(path.read_bytes()[:100])
        with pytest.raises(UserError, match="/checkpoints/1: Expecting value"):
            checkpoints.restore(1, shapes_of(state))
        time.sleep(0.1)
        gc.collect()


def test_a_flipped_bit_names_the_array_and_the_checkpoint_before(open_run, tmp_path):
    kernel = np.arange(3000, dtype=np.float32)  # long enough for a separate file
    state = {"params": {"kernel": jnp.asarray(kernel)}}
    checkpoints = open_run()
    for step in (1, 2):
        checkpoints.save(step, state, {"next_example": 8 * step}, {})
    checkpoints.wait()
    for path in (tmp_path / "checkpoints" / "2" / "state").rglob("d/*"):
        path.write_bytes(path.read_bytes().replace(np.float32(7).tobytes(), np.float32(15)))
    shapes = shapes_of(state["params"])
    message = "2: the array params/kernel has another checksum; .* continue from step 1"
    with pytest.raises(UserError, match=message):
        open_run().restore(2, {"params": shapes})
    with pytest.raises(UserError, match=message):
        open_run().restore_params(2, shapes)
    assert np.array_equal(open_run().restore_params(1, shapes)["kernel"], kernel)


def test_a_checkpoint_of_another_model_is_named(open_run, abstract):
    save(open_run(), {1: None})
    other = shapes_of(jax.tree.map(lambda leaf: leaf[..., None] + jnp.zeros(2), state_of(0)))
    with pytest.raises(UserError, match="cannot read the checkpoint .*/checkpoints/1: "):
        open_run().restore(1, other)
    with pytest.raises(UserError, match="cannot read the checkpoint .*/checkpoints/1: "):
        open_run().restore(1, {"params": {"bias": abstract["params"]["kernel"]}})
    with pytest.raises(UserError, match="checkpoints/1: it has no array params/bias; if disk and"):
        open_run().restore_params(1, {"bias": abstract["params"]["kernel"]})


def test_a_store_that_fails_is_tried_again_if_it_has_worked(bucket, monkeypatch):
    workdir = as_path(f"{bucket}/run")

    def refuses(*_, **__):
        raise ConnectionError("the line is dead")

    for steps, kind, last in (
        (0, UserError, "there is no checkpoint yet; check path"),
        (1, RetryableError, "the last complete one is from step 0; when it can be reached"),
    ):
        with RunCheckpoints(workdir, best_metric=("loss", False), keep=1) as checkpoints:
            save(checkpoints, dict.fromkeys(range(steps)))
            with monkeypatch.context() as patch:
                patch.setattr(checkpoints._manager, "save", refuses)
                with pytest.raises(UserError, match=f"the line is dead; {last}") as caught:
                    checkpoints.save(9, state_of(9), {}, {})
        assert type(caught.value) is kind


def test_a_disk_that_is_too_small_is_noticed_before_anything_is_written(
    open_run, tmp_path, monkeypatch
):
    checkpoints = open_run()
    save(checkpoints, {1: None})
    disk = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: disk._replace(free=20))
    with pytest.raises(
        UserError, match="it takes 0 MB, 0 MB are free; the last complete one is from step 1"
    ):
        checkpoints.save(2, state_of(2), {"next_example": 16}, {})
    assert steps_of(tmp_path) == [1]
