"""Unfinished work that is continued, or refused where it was damaged or replaced."""

import hashlib
import json
import os

import pytest

from bert_jax.errors import UserError
from bert_jax.files import Journal, continued
from bert_jax.files.journal import checksum

REQUEST = {"model": "a", "layers": (1, 2)}


def work(directory, rows=(), request=REQUEST):
    """Continues with rows, and stops."""
    with continued(directory, ["rows", "more*"], "{:,} rows", lambda: request) as journal:
        file = journal.open("rows")
        for row in rows:
            file.write(row.encode())
            journal.mark(journal.count + 1, {"last": row})
        file.write(b"not marked")
        raise KeyboardInterrupt


@pytest.fixture
def directory(tmp_path):
    directory = tmp_path / "work"
    with pytest.raises(KeyboardInterrupt):
        work(directory, ["one ", "two "])
    return directory


def test_the_record(directory):
    assert sorted(os.listdir(directory)) == [".record.json", "rows"]
    record = json.loads((directory / ".record.json").read_text())
    checksum = record.pop("checksum")
    assert record == {
        "request": {"model": "a", "layers": [1, 2]},
        "count": 2,
        "state": {"last": "two "},
        "files": {"rows": f"8:{hashlib.sha256(b'one two ').hexdigest()}"},
    }
    assert checksum == hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def test_bytes_after_the_record_are_written_again(directory, capsys):
    assert (directory / "rows").read_bytes() == b"one two not marked"
    with pytest.raises(KeyboardInterrupt):
        work(directory, ["three "])
    assert capsys.readouterr().err == (
        f"{directory} keeps 3 rows; the same command continues after them\n"
    )
    assert (directory / "rows").read_bytes() == b"one two three not marked"
    with continued(directory, ["rows"], "{:,} rows", lambda: REQUEST) as journal:
        assert (journal.count, journal.state) == (3, {"last": "three "})
        file = journal.open("rows")
        assert (file.size, os.pread(file.fileno(), 5, 8)) == (14, b"three")
        assert (directory / "rows").read_bytes() == b"one two three "
    assert not directory.exists()


def test_what_is_recorded_is_in_the_file(tmp_path, monkeypatch):
    """Else a process that is killed now leaves damaged work."""
    monkeypatch.setattr("bert_jax.files.journal.RECORD_SECONDS", 0)
    with continued(tmp_path / "work", ["rows"], "{:,} rows", lambda: REQUEST) as journal:
        journal.open("rows").write(b"one ")
        journal.mark(1, {})
        assert (tmp_path / "work" / "rows").read_bytes() == b"one "


def edited(old, new):
    return lambda record: record.write_text(record.read_text().replace(old, new))


def replaced(make):
    def change(path):
        path.rename(path.parents[1] / "moved")
        make(path)

    return change


DAMAGED = "is damaged; remove /.*work to start anew$"
LINK = "is a link, not a file of bert_jax; remove it"
PIPE = "is a named pipe, not a file of bert_jax; remove it"
NAMES = r"is one of several names of a file \(hard links\), not a file of bert_jax; remove it"


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        (".record.json", edited('"count": 2', '"count": 1'), DAMAGED),
        (".record.json", edited('"a"', '"b"'), DAMAGED),
        (".record.json", lambda record: record.write_bytes(record.read_bytes()[:-1]), DAMAGED),
        (".record.json", lambda record: record.write_bytes(b"PK\3\4"), DAMAGED),
        (".record.json", lambda record: record.write_text("[" * 100_000), DAMAGED),
        (".record.json", lambda record: record.write_text("9" * 10_000), DAMAGED),
        (".record.json", lambda record: record.write_text("[1]"), DAMAGED),
        (".record.json", lambda record: record.write_text('{"counts": {"rows": 2}}'), DAMAGED),
        (".record.json", replaced(os.mkfifo), PIPE),
        (".record.json", replaced(lambda record: record.symlink_to("../moved")), LINK),
        (".record.json", lambda record: (record.parents[1] / "copy").hardlink_to(record), NAMES),
        ("rows", lambda rows: rows.write_bytes(b"one tvo not marked"), DAMAGED),
        ("rows", lambda rows: rows.write_bytes(b"one two"), DAMAGED),
        ("rows", lambda rows: rows.unlink(), DAMAGED),
        ("rows", replaced(os.mkfifo), PIPE),
        ("rows", replaced(lambda rows: rows.symlink_to("../moved")), LINK),
        ("rows", lambda rows: (rows.parents[1] / "copy").hardlink_to(rows), NAMES),
    ],
)
def test_damaged_work_is_not_continued(directory, name, change, message):
    change(directory / name)
    with pytest.raises(UserError, match=f"{name} {message}"):
        work(directory)
    left = [directory / "rows", directory.with_name("moved"), directory.with_name("copy")]
    texts = [path.read_bytes() for path in left if path.is_file()]
    assert name == ".record.json" or b"one two not marked" in texts or "damaged" in message


@pytest.mark.parametrize(
    "forged",
    [
        {"count": "2"},
        {"count": 2.0},
        {"count": True},
        {"count": -1},
        {"state": [1]},
        {"files": {"rows": 8}},
        {"files": {"rows": "8"}},
        {"files": {"rows": "-8:" + "0" * 64}},
        {"files": ["rows"]},
        {"request": "a"},
    ],
)
def test_values_of_other_types_with_the_right_checksum(directory, forged):
    path = directory / ".record.json"
    record = json.loads(path.read_text()) | forged
    del record["checksum"]
    path.write_text(json.dumps({**record, "checksum": checksum(record)}))
    with pytest.raises(UserError, match=f".record.json {DAMAGED}"):
        work(directory)


def test_a_hidden_file_of_the_user_stays(directory):
    (directory / ".notes").write_text("mine")
    (directory / "..record.json.77.partial").write_text("{")  # of a process that was killed
    with continued(directory, ["rows"], "{:,} rows", lambda: REQUEST):
        pass
    assert [path.name for path in directory.iterdir()] == [".notes"]
    with pytest.raises(KeyboardInterrupt):
        work(directory, ["one "])
    assert (directory / ".notes").read_text() == "mine"


def test_another_request(directory):
    with pytest.raises(UserError, match=r"work has 2 rows of another request \(other layers, mod"):
        work(directory, request={"model": "b"})
    assert (directory / "rows").read_bytes() == b"one two not marked"


def test_an_error_of_the_request_is_not_damage(directory):
    def request():
        raise TypeError("a flaw")

    with (
        pytest.raises(TypeError, match="a flaw"),
        continued(directory, ["rows"], "{:,} rows", request),
    ):
        pass


def test_a_name_outside_of_the_directory(directory):
    with pytest.raises(UserError, match=r"names '\.\./a', which is not the name of a file below"):
        Journal(directory, "{:,} rows", lambda: REQUEST).open("../a")


def test_a_foreign_directory_is_refused(directory):
    (directory / "notes").write_text("mine")
    with pytest.raises(UserError, match="work is for unfinished work, but has 'notes'; move it aw"):
        work(directory)
    (directory / "notes").unlink()
    directory.rename(directory.with_name("elsewhere"))
    directory.symlink_to("elsewhere")
    with pytest.raises(UserError, match="work is for unfinished work, but is a file or a link; mo"):
        work(directory)
