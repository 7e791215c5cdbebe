"""Unfinished work that is continued, or refused where it was damaged, forged or replaced."""

import hashlib
import json
import os

import pytest

from bert_jax.errors import UserError
from bert_jax.files import Journal, continued

REQUEST = {"model": "a", "layers": (1, 2)}


def work(directory, rows=(), request=REQUEST):
    """Continues with rows; returns the content of the file at the end, before it is removed."""
    with continued(directory, ["rows", "more*"], "{:,} rows", lambda: request) as journal:
        file = journal.open("rows")
        for row in rows:
            file.write(row.encode())
            journal.mark({"rows": journal.counts.get("rows", 0) + 1}, f"after {row}")
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
        "counts": {"rows": 2},
        "digest": "after two ",
        "files": {"rows": f"8:{hashlib.sha256(b'one two ').hexdigest()}"},
    }
    assert checksum == hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def test_what_came_after_the_record_is_written_again(directory, capsys):
    assert (directory / "rows").read_bytes() == b"one two not marked"
    with pytest.raises(KeyboardInterrupt):
        work(directory, ["three "])
    assert capsys.readouterr().err == (
        f"{directory} keeps 3 rows; the same command continues after them\n"
    )
    assert (directory / "rows").read_bytes() == b"one two three not marked"
    with continued(directory, ["rows"], "{:,} rows", lambda: REQUEST) as journal:
        assert (journal.counts, journal.digest) == ({"rows": 3}, "after three ")
        file = journal.open("rows")
        assert (file.size, os.pread(file.fileno(), 5, 8)) == (14, b"three")
        assert (directory / "rows").read_bytes() == b"one two three "
    assert not directory.exists()


def changed(**fields):
    """Changes fields of the record, with the checksum that belongs to them."""

    def change(record):
        new = json.loads(record.read_text()) | fields
        del new["checksum"]
        new["checksum"] = hashlib.sha256(json.dumps(new, sort_keys=True).encode()).hexdigest()
        record.write_text(json.dumps(new))

    return change


def edited(old, new):
    return lambda record: record.write_text(record.read_text().replace(old, new))


def replaced(make):
    def change(path):
        path.rename(path.parents[1] / "moved")
        make(path)

    return change


DAMAGED = "is damaged; remove /.*work to start anew$"
LINK = r"record.json is a link, not a file of bert_jax; remove it"
NAMES = r"is one of several names of a file \(hard links\), not a file of bert_jax; remove it"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (edited('"rows": 2', '"rows": 1'), DAMAGED),
        (edited("two", "tvo"), DAMAGED),
        (edited('"a"', '"b"'), DAMAGED),
        (lambda record: record.write_bytes(record.read_bytes()[:-1]), DAMAGED),
        (lambda record: record.write_bytes(b""), DAMAGED),
        (lambda record: record.write_bytes(b"PK\3\4"), DAMAGED),
        (lambda record: record.write_text("[" * 100_000), DAMAGED),
        (lambda record: record.write_text('{"checksum": ' + "[" * 100_000), DAMAGED),
        (lambda record: record.write_text("9" * 10_000), DAMAGED),
        (lambda record: record.write_text("[1]"), DAMAGED),
        (lambda record: record.write_text("null"), DAMAGED),
        (changed(counts={"rows": "2"}), DAMAGED),
        (changed(counts={"rows": -2}), DAMAGED),
        (changed(counts={"rows": True}), DAMAGED),
        (changed(counts=[2]), DAMAGED),
        (changed(files=[]), DAMAGED),
        (changed(files={"rows": ["8", "a"]}), DAMAGED),
        (changed(files={"rows": "-1:a"}), DAMAGED),
        (changed(files={"rows": "8:a"}), DAMAGED),
        (changed(files={"rows": f"9:{hashlib.sha256(b'one two n').hexdigest()[1:]}"}), DAMAGED),
        (changed(request=None), DAMAGED),
        (changed(more=1), DAMAGED),
        (changed(request={"model": "b"}), r"work has 2 rows of another request \(other layers, mo"),
        (replaced(lambda record: record.symlink_to("../moved")), LINK),
        (replaced(lambda record: record.symlink_to("/dev/zero")), LINK),
        (replaced(os.mkfifo), "record.json is a named pipe, not a file of bert_jax; remove it"),
        (replaced(os.mkdir), "record.json is a directory, not a file of bert_jax; remove it"),
        (
            lambda record: record.with_name("copy").hardlink_to(record),
            "unfinished work, but has 'c",
        ),
        (lambda record: (record.parents[1] / "copy").hardlink_to(record), f"record.json {NAMES}"),
    ],
)
def test_a_record_that_is_not_believed(directory, change, message):
    change(directory / ".record.json")
    before = (directory / "rows").read_bytes()
    with pytest.raises(UserError, match=message):
        work(directory)
    assert (directory / "rows").read_bytes() == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows.write_bytes(b"one tvo not marked"), f"rows {DAMAGED}"),
        (lambda rows: rows.write_bytes(b"one two"), f"rows {DAMAGED}"),
        (lambda rows: rows.unlink(), f"rows {DAMAGED}"),
        (replaced(lambda rows: rows.symlink_to("../moved")), "rows is a link, not a file of bert"),
        (replaced(lambda rows: rows.symlink_to("/dev/zero")), "rows is a link, not a file of bert"),
        (replaced(os.mkfifo), "rows is a named pipe, not a file of bert_jax; remove it"),
        (lambda rows: (rows.parents[1] / "copy").hardlink_to(rows), f"rows {NAMES}"),
    ],
)
def test_a_file_that_is_not_continued(directory, change, message):
    change(directory / "rows")
    with pytest.raises(UserError, match=message):
        work(directory)
    for name in ("moved", "copy"):
        if (path := directory.with_name(name)).exists():
            assert path.read_bytes() == b"one two not marked"


def test_a_name_outside_of_the_directory(directory):
    with pytest.raises(UserError, match=r"names '\.\./a', which is not the name of a file below"):
        Journal(directory, "{:,} rows", lambda: REQUEST).open("../a")


def test_a_directory_of_others(directory):
    (directory / "notes").write_text("mine")
    with pytest.raises(UserError, match="work is for unfinished work, but has 'notes'; move it aw"):
        work(directory)
    (directory / "notes").unlink()
    directory.rename(directory.with_name("elsewhere"))
    directory.symlink_to("elsewhere")
    with pytest.raises(UserError, match="work is for unfinished work, but is a file or a link; mo"):
        work(directory)
