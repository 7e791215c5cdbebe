"""Checkpoints of a run, with a state of three numbers."""

import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.checkpoints.runs import RunCheckpoints, has_checkpoint
from bert_jax.errors import RetryableError, UserError
from bert_jax.files import as_path


def state_of(step: int):
    return {
        "params": {"kernel": jnp.arange(3.0) + step},
        "moments": {"kernel": jnp.arange(3.0) * step},
        "step": jnp.int32(step),
    }


@pytest.fixture(scope="module")
def abstract():
    place = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place), state_of(0)
    )


@pytest.fixture
def open_run(tmp_path):
    """Opens the checkpoints of one work directory; closes them at the end."""
    opened = []

    def make(keep=2, best_metric=("loss", False)) -> RunCheckpoints:
        opened.append(RunCheckpoints(tmp_path, keep=keep, best_metric=best_metric))
        return opened[-1]

    yield make
    for checkpoints in opened:
        checkpoints.close()


def save(checkpoints: RunCheckpoints, metrics: dict[int, float | None], name="loss") -> None:
    """Saves steps with their validation metric, None for a step that was not evaluated."""
    for step, value in metrics.items():
        found = {} if value is None else {name: value, "other": 0.0}
        checkpoints.save(step, state_of(step), {"next_example": 8 * step}, found)
    checkpoints.wait()


def steps_of(tmp_path) -> list[int]:
    return sorted(int(path.name) for path in (tmp_path / "checkpoints").iterdir())


def test_state_and_position_come_back_to_the_bit(open_run, abstract):
    checkpoints = open_run()
    save(checkpoints, {3: None})
    state, position = open_run().restore(3, abstract)
    expected = state_of(3)
    assert jax.tree.structure(state) == jax.tree.structure(expected)
    for found, wanted in zip(*map(jax.tree.leaves, (state, expected)), strict=True):
        assert found.dtype == wanted.dtype
        assert np.asarray(found).tobytes() == np.asarray(wanted).tobytes()
    assert position == {"next_example": 24}


def test_parameters_come_back_alone(open_run, abstract):
    save(open_run(), {3: None})
    params = open_run().restore_params(3, abstract["params"])
    assert params["kernel"].tolist() == [3.0, 4.0, 5.0]
    assert list(params) == ["kernel"]


def test_the_newest_and_the_best_are_kept(open_run, tmp_path):
    checkpoints = open_run(keep=2)
    save(checkpoints, {1: 5.0, 2: 3.0, 3: 4.0, 4: 4.5, 5: 6.0})
    assert steps_of(tmp_path) == [2, 4, 5]  # 2 has the lowest loss
    again = open_run(keep=2)
    assert (again.latest_step, again.best_step) == (5, 2)
    assert (again.step_of("latest"), again.step_of("best"), again.step_of("4")) == (5, 2, 4)
    save(again, {6: 1.0, 7: 9.0})
    assert steps_of(tmp_path) == [6, 7]


def test_the_highest_may_be_the_best(open_run, tmp_path):
    checkpoints = open_run(keep=1, best_metric=("accuracy", True))
    save(checkpoints, {1: 0.2, 2: 0.8, 3: 0.5, 4: 0.1}, name="accuracy")
    assert steps_of(tmp_path) == [2, 4]
    assert checkpoints.step_of("best") == 2


def test_steps_without_an_evaluation_are_no_candidates(open_run, tmp_path):
    checkpoints = open_run(keep=1)
    save(checkpoints, {1: None, 2: 3.0, 3: None, 4: None})
    assert steps_of(tmp_path) == [2, 4]
    assert (checkpoints.best_step, checkpoints.latest_step) == (2, 4)


def test_without_any_evaluation_the_newest_is_the_best(open_run, tmp_path):
    checkpoints = open_run(keep=2)
    save(checkpoints, {1: None, 2: None, 3: None})
    assert steps_of(tmp_path) == [2, 3]
    assert checkpoints.step_of("best") == 3


def test_names_of_steps_that_are_not_there(open_run):
    checkpoints = open_run()
    assert checkpoints.latest_step is None
    assert checkpoints.latest == "that of no step"
    with pytest.raises(UserError, match="has no checkpoint; train first"):
        checkpoints.step_of("latest")
    save(checkpoints, {1: None, 2: None})
    assert checkpoints.latest == "that of step 2"
    for name in ("3", "-1", "newest", "1.0"):
        with pytest.raises(UserError, match=f"has no checkpoint '{name}'; it has latest, best, 1"):
            checkpoints.step_of(name)


def test_a_directory_that_was_not_finished_does_not_count(open_run, tmp_path):
    save(open_run(), {1: None})
    unfinished = tmp_path / "checkpoints" / "2.orbax-checkpoint-tmp-1"
    shutil.copytree(tmp_path / "checkpoints" / "1", unfinished)
    assert open_run().latest_step == 1


@pytest.mark.parametrize("restore", ["restore", "restore_params"])
def test_a_damaged_checkpoint_is_named(open_run, abstract, tmp_path, restore):
    save(open_run(), {1: None, 2: None})
    checkpoints = open_run()
    wanted = abstract if restore == "restore" else abstract["params"]
    for path in (tmp_path / "checkpoints" / "2" / "state").rglob("*"):
        if path.is_file() and path.parent.name == "d":
            path.write_bytes(path.read_bytes()[:10])
    with pytest.raises(UserError, match="cannot read the checkpoint .*/checkpoints/2: .*: remove"):
        getattr(checkpoints, restore)(2, wanted)
    shutil.rmtree(tmp_path / "checkpoints" / "2")
    assert open_run().latest_step == 1
    assert open_run().restore(1, abstract)[1] == {"next_example": 8}


def test_a_checkpoint_of_another_model_is_named(open_run, abstract):
    save(open_run(), {1: None})
    other = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct((*leaf.shape, 2), leaf.dtype, sharding=leaf.sharding),
        abstract,
    )
    with pytest.raises(UserError, match="cannot read the checkpoint .*/checkpoints/1: "):
        open_run().restore(1, other)
    with pytest.raises(UserError, match="cannot read the checkpoint .*/checkpoints/1: "):
        open_run().restore(1, {"params": {"bias": abstract["params"]["kernel"]}})


def test_one_that_was_put_aside_does_not_count(open_run, tmp_path):
    save(open_run(), {1: None})
    assert has_checkpoint(tmp_path)
    (tmp_path / "checkpoints" / "1").rename(tmp_path / "checkpoints" / "old_1")
    assert not has_checkpoint(tmp_path)
    assert open_run().latest_step is None


def test_a_store_that_fails_is_tried_again_if_it_has_worked(bucket, monkeypatch):
    workdir = as_path(f"{bucket}/run")

    def refuses(*_, **__):
        raise ConnectionError("the line is dead")

    for steps, kind in ((0, UserError), (1, RetryableError)):
        with RunCheckpoints(workdir, best_metric=("loss", False), keep=1) as checkpoints:
            save(checkpoints, dict.fromkeys(range(steps)))
            with monkeypatch.context() as patch:
                patch.setattr(checkpoints._manager, "save", refuses)
                with pytest.raises(UserError, match="the line is dead; the last whole") as found:
                    checkpoints.save(9, state_of(9), {}, {})
        assert type(found.value) is kind


def test_in_a_bucket_a_checkpoint_that_is_being_written_does_not_count(bucket):
    workdir = as_path(f"{bucket}/run")
    place = workdir / "checkpoints" / "5"
    (place / "state").mkdir(parents=True)
    (place / "state" / "data").write_bytes(b"half")
    assert not has_checkpoint(workdir)
    (place / "commit_success.txt").write_bytes(b"")
    assert has_checkpoint(workdir)


def test_a_disk_that_is_too_small_is_noticed_before_anything_is_written(
    open_run, tmp_path, monkeypatch
):
    checkpoints = open_run()
    save(checkpoints, {1: None})
    disk = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: disk._replace(free=20))
    with pytest.raises(
        UserError, match="it takes 0 MB, 0 MB are free; the last whole one is that of step 1"
    ):
        checkpoints.save(2, state_of(2), {"next_example": 16}, {})
    assert steps_of(tmp_path) == [1]
