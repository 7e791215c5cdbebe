"""What a run writes down, and what a resumed run keeps of it."""

import os
import resource
import threading
from pathlib import Path

import pytest

from bert_jax.errors import RetryableError, UserError
from bert_jax.files import as_path
from bert_jax.training import logs
from bert_jax.training.logs import RunLog, read_metrics


@pytest.fixture
def workdir(tmp_path):
    """A run that logged steps 1 to 4 and evaluated at 2 and 4."""
    log = RunLog(tmp_path, resume_step=0)
    for step in (1, 2, 3, 4):
        log.write(step, "train", {"loss": 5.0 - step, "rate": 0.5})
        if step % 2 == 0:
            log.write(step, "validation", {"loss": 6.0 - step})
    log.close()
    return tmp_path


def lines_of(workdir) -> list[str]:
    return (workdir / "metrics.jsonl").read_text().splitlines()


def test_lines_by_eye(workdir):
    assert lines_of(workdir) == [
        '{"step": 1, "split": "train", "loss": 4.0, "rate": 0.5}',
        '{"step": 2, "split": "train", "loss": 3.0, "rate": 0.5}',
        '{"step": 2, "split": "validation", "loss": 4.0}',
        '{"step": 3, "split": "train", "loss": 2.0, "rate": 0.5}',
        '{"step": 4, "split": "train", "loss": 1.0, "rate": 0.5}',
        '{"step": 4, "split": "validation", "loss": 2.0}',
    ]
    assert read_metrics(workdir, "validation") == [
        {"step": 2, "loss": 4.0},
        {"step": 4, "loss": 2.0},
    ]


def test_a_resumed_run_drops_lines_after_its_checkpoint(workdir):
    log = RunLog(workdir, resume_step=2)
    log.write(3, "train", {"loss": 9.0})
    log.close()
    log = RunLog(workdir, resume_step=2)  # again, after a kill
    log.write(3, "train", {"loss": 9.0})
    log.close()
    assert lines_of(workdir)[2:] == [
        '{"step": 2, "split": "validation", "loss": 4.0}',
        '{"step": 2, "split": "resumed"}',
        '{"step": 3, "split": "train", "loss": 9.0}',
    ]
    RunLog(workdir, resume_step=0).close()
    assert lines_of(workdir) == []


@pytest.mark.parametrize(
    ("last", "steps"),
    [
        ('{"step": 3, "spl', [1, 2, 5]),
        ('{"step": 3, "split": "train", "loss"', [1, 2, 5]),
        ('{"step": 3, "split": "train", "loss": 2.0}', [1, 2, 3, 5]),  # without its end of line
    ],
)
def test_a_last_line_is_completed_or_dropped(workdir, last, steps):
    (workdir / "metrics.jsonl").write_text("\n".join([*lines_of(workdir)[:3], last]))
    log = RunLog(workdir, resume_step=4)
    log.write(5, "train", {"loss": 0.0})
    # It is on the disk as soon as it is written.
    assert [record["step"] for record in read_metrics(workdir, "train")] == steps
    log.close()


def test_damaged_lines_are_dropped_and_a_pipe_is_named(workdir):
    path = workdir / "metrics.jsonl"
    lines = lines_of(workdir)
    damaged = [
        '{"steq": 2}',
        '{"step": 3, "splht": ""}',
        '{"step": "3", "split": ""}',
        "[1]",
        "\xff",
    ]
    path.write_bytes("\n".join([*damaged, *lines]).encode("latin1"))
    RunLog(workdir, resume_step=3).close()
    assert lines_of(workdir) == [*lines[:4], '{"step": 3, "split": "resumed"}']
    assert len(read_metrics(workdir, "train")) == 3
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(UserError, match="metrics.jsonl is a named pipe, not a regular file; move"):
        RunLog(workdir, resume_step=3)
    path.unlink()
    (workdir / "tensorboard").rename(workdir / "kept")
    (workdir / "tensorboard").write_text("")
    with pytest.raises(UserError, match="tensorboard is not a directory; move it away"):
        RunLog(workdir, resume_step=3)


def test_a_disk_that_is_full_is_one_error_and_no_thread(tmp_path, capfd):
    threads = threading.enumerate()
    log = RunLog(tmp_path, resume_step=0)
    assert threading.enumerate() == threads
    old, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, hard))  # bytes of each file
    try:
        with pytest.raises(UserError, match=f"cannot write the metrics in {tmp_path}: File too l"):
            _ = [log.write(step, "train", {"loss": 1.0}) for step in range(1, 20)]
        with pytest.raises(UserError, match="cannot write the metrics in .* run the same command"):
            log.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (old, hard))
    assert [record["step"] for record in read_metrics(tmp_path, "train")] == [1, 2, 3, 4]
    assert capfd.readouterr().err == ""


def test_other_hosts_write_nothing(tmp_path):
    log = RunLog(tmp_path, resume_step=0, enabled=False)
    log.write(1, "train", {"loss": 1.0})
    log.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("resume_step", "expected"),
    [(2, [(1, 4.0), (2, 3.0), (3, 9.0)]), (0, [(1, 9.0)])],
)
def test_tensorboard_shows_each_step_once(workdir, resume_step, expected):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    # The files are named by the second they were begun in; this one was begun earlier.
    (events,) = (workdir / "tensorboard").iterdir()
    events.rename(events.with_name("events.out.tfevents.1000000000.host"))
    log = RunLog(workdir, resume_step=resume_step)
    log.write(resume_step + 1, "train", {"loss": 9.0})
    log.close()
    events = EventAccumulator(str(workdir / "tensorboard"))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("train/loss")] == expected


def test_a_bucket_that_cannot_be_reached_ends_no_run(store, capfd):
    log = RunLog(as_path("gs://not-there/run"), resume_step=0)
    log.write(1, "train", {"loss": 1.0})
    log.save()
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("warning: gs://not-there/run: cannot be reached")
    assert line.endswith("(metrics: tried again at the next save)")
    with pytest.raises(RetryableError, match="the metrics are in ") as actual:
        log.close()
    kept = Path(str(actual.value).rpartition(" ")[2])
    assert read_metrics(kept, "train") == [{"step": 1, "loss": 1.0}]


def test_what_the_curves_show(tmp_path, monkeypatch):
    metrics = {
        "dev_matched_accuracy": 0.8, "dev_matched_macro_f1": 0.7, "mlm_loss": 2.0,
        "mlm_accuracy": 0.5, "loss": 2.0,
    }  # fmt: skip
    log = RunLog(tmp_path, resume_step=0)
    log.write(1, "train", {"mlm_loss": 2.5, "mlm_accuracy": 0.4})
    log.write(2, "train", {"mlm_loss": 1.5, "mlm_accuracy": 0.5})
    log.write(2, "validation", metrics)
    log.close()
    RunLog(tmp_path, resume_step=2).close()
    drawn = []
    monkeypatch.setattr(logs, "save_figure", lambda path, figure, **_: drawn.append(figure))
    baselines = {
        "dev_matched_accuracy_majority": 0.4,
        "dev_matched_macro_f1_majority": 0.2,
        "mlm_accuracy_most_frequent": 0.1,
    }
    logs.draw_curves(tmp_path, baselines, teacher={"mlm_accuracy": 0.6})
    (figure,) = drawn
    assert figure.get_suptitle() == "/".join(tmp_path.parts[-2:])
    panels = [panel for panel in figure.axes if panel.get_visible()]
    assert all(panel.xaxis.get_tick_params()["labelbottom"] for panel in panels)
    lines = {
        panel.get_title(): {
            line.get_label(): (line.get_color(), line.get_ydata()[0]) for line in panel.get_lines()
        }
        for panel in panels
    }
    resumed = {"resumed": ("black", 0)}  # from the bottom to the top
    assert lines == {
        "dev matched accuracy": {
            "validation": ("C1", 0.8), "majority (baseline)": ("gray", 0.4), **resumed,
        },
        "dev matched macro f1": {
            "validation": ("C1", 0.7), "majority (baseline)": ("gray", 0.2), **resumed,
        },
        "mlm loss": {
            "train, single batches": ("C0", 2.5), "train, mean since the last validation":
            ("C0", 2.0), "validation": ("C1", 2.0), **resumed,
        },
        "mlm accuracy": {
            "train, single batches": ("C0", 0.4), "train, mean since the last validation":
            ("C0", 0.45), "validation": ("C1", 0.5),
            "most frequent (baseline)": ("gray", 0.1), "teacher": ("C2", 0.6), **resumed,
        },
    }  # fmt: skip
