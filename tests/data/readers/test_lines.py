"""Lines of files of every kind, and of pipes."""

import bz2
import gzip
import io
import lzma
import os
import pickle
import tarfile
import threading
import tracemalloc
import zipfile

import pytest
import zstandard

from bert_jax.data.readers.lines import may_wait, open_lines, uncompressed_name
from bert_jax.errors import UserError


def read(source):
    with open_lines(source) as lines:
        return list(lines)


def test_lines_and_their_ends(tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes("\ufeffthe sun\r\nüber\n\n\ufefflast".encode())
    assert read(path) == [(1, "the sun\r\n"), (2, "über\n"), (3, "\n"), (4, "\ufefflast")]
    path.write_bytes(b"")
    assert read(path) == []


def test_lines_that_end_in_cr(tmp_path):
    path = tmp_path / "text.txt"
    for content in (b"one\rtwo\r\rlast", gzip.compress(b"one\rtwo\r\rlast"),
                    "\ufeffone\rtwo\r\rlast".encode("utf-16-le")):  # fmt: skip
        path.write_bytes(content)
        assert read(path) == [(1, "one\n"), (2, "two\n"), (3, "\n"), (4, "last")]
    path.write_bytes(b"a\rb\nc\r\n")  # a CR in a line is a character
    assert read(path) == [(1, "a\rb\n"), (2, "c\r\n")]


def test_a_compressed_file_of_nothing(tmp_path):
    for name, compress in COMPRESSIONS.items():
        path = tmp_path / f"a.{name}"
        path.write_bytes(compress(b""))
        assert read(path) == []


def test_compressed_files(tmp_path):
    for name, compress in {
        "a.gz": gzip.compress,
        "a.bz2": bz2.compress,
        "a.xz": lzma.compress,
        "a.zst": zstandard.compress,
    }.items():
        assert uncompressed_name(f"A.csv{name[1:]}") == "a.csv"
        for path in (tmp_path / name, tmp_path / "known by its first bytes"):
            path.write_bytes(compress(b"one\n") + compress(b"member two\n"))
            assert read(path) == [(1, "one\n"), (2, "member two\n")]
        (tmp_path / name).write_bytes(compress(b"one\n" * 9999)[:-9])
        with pytest.raises(UserError, match=f"{name}: damaged compressed file"):
            read(tmp_path / name)


COMPRESSIONS = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": zstandard.ZstdCompressor(write_checksum=True).compress,
}


@pytest.mark.parametrize("ending", COMPRESSIONS)
def test_every_byte_of_a_compressed_file_counts(tmp_path, ending):
    """Also of a later stream, as `cat a.xz b.xz` and pbzip2 write them."""
    path = tmp_path / f"a.{ending}"
    first, second = map(COMPRESSIONS[ending], (b"one\n", b"two\n"))
    path.write_bytes(first + second)
    assert read(path) == [(1, "one\n"), (2, "two\n")]
    damaged = [first + second[:at] + bytes([second[at] ^ 1]) + second[at + 1 :] for at in (0, 12)]
    for content in (*damaged, first + b"junk", first + second[:1], first + second + b"\x01"):
        path.write_bytes(content)
        with pytest.raises(UserError, match=f"a.{ending}: damaged compressed file: "):
            read(path)


def test_padding_of_xz_and_frames_of_zstandard_that_are_skipped(tmp_path):
    path = tmp_path / "a"
    one, two = lzma.compress(b"one\n"), lzma.compress(b"two\n")
    path.write_bytes(one + bytes(2000) + two + bytes(4))
    assert read(path) == [(1, "one\n"), (2, "two\n")]
    skipped = b"\x50\x2a\x4d\x18\x03\0\0\0abc"  # a size of 3 bytes, as pzstd begins
    path.write_bytes(skipped + zstandard.compress(b"one\n") + skipped)
    assert read(path) == [(1, "one\n")]


@pytest.mark.parametrize(
    ("ending", "size", "most"),
    [("gz", 20 << 20, 10 << 20), ("bz2", 20 << 20, 10 << 20), ("zst", 100 << 20, 50 << 20)],
)
def test_a_compressed_file_is_read_in_bounded_parts(tmp_path, ending, size, most):
    path = tmp_path / f"a.{ending}"
    path.write_bytes(COMPRESSIONS[ending](b"one\n" + bytes(size)))
    tracemalloc.start()
    with open_lines(path) as lines:
        assert next(iter(lines)) == (1, "one\n")
    assert tracemalloc.get_traced_memory()[1] < most
    tracemalloc.stop()


def tar_of(name):
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        archive.addfile(tarfile.TarInfo(name))
    return content.getvalue()


def zip_of(name):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr(name, "text")
    return content.getvalue()


# How files of other programs begin; those of pyarrow 25.0, h5py 3 and SQLite 3 as they write them.
FOREIGN = {
    "a zip archive, as .docx": zip_of("word/document.xml"),
    "a tar archive": tar_of("a.txt"),
    "gzip data": gzip.compress(b"compressed twice"),
    "a Parquet file": b"PAR1\x15\x04\x15\x14",
    "an Arrow file": b"ARROW1\0\0\xff\xff\xff\xffx\0\0\0",
    "an Arrow stream": b"\xff\xff\xff\xffp\0\0\0",
    "an HDF5 file": b"\x89HDF\r\n\x1a\n\0",
    "an SQLite database": b"SQLite format 3\0\x10\0",
    "a pickle": pickle.dumps(["text"]),
    "a PDF file": b"%PDF-1.7\n%\xe2\xe3\xcf\xd3",
    "an old Office document": b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
}


@pytest.mark.parametrize("what", FOREIGN)
def test_a_foreign_file_is_named(tmp_path, what):
    path = tmp_path / "text.csv"
    for content in (FOREIGN[what], gzip.compress(FOREIGN[what])):
        path.write_bytes(content if what != "gzip data" else gzip.compress(FOREIGN[what]))
        with pytest.raises(UserError, match=f"^{path} is {what}.*, not text; unpack it, or export"):
            read(path)
        with open_lines(path) as lines, pytest.raises(UserError, match=f"is {what}"):
            lines.whole()


def test_words_that_begin_as_a_format_are_text(tmp_path):
    path = tmp_path / "text.txt"
    for word in ("BZh9 is a name", "PAR1 genes", "PK", "Rar!", "ARROW1", "Obj", "PDF-1.7"):
        path.write_text(word)
        assert read(path) == [(1, word)]


def test_other_encodings_with_their_marks(tmp_path):
    text = "the sun\r\n\nзима 🌲\u4e0a\n\ufefflast"
    lines = [(1, "the sun\r\n"), (2, "\n"), (3, "зима 🌲上\n"), (4, "\ufefflast")]
    path = tmp_path / "text.txt"
    for mark, encoding in [
        (b"\xff\xfe", "utf-16-le"),
        (b"\xfe\xff", "utf-16-be"),
        (b"\xff\xfe\0\0", "utf-32-le"),
        (b"\0\0\xfe\xff", "utf-32-be"),
    ]:
        content = mark + text.encode(encoding)
        path.write_bytes(content)
        assert read(path) == lines
        with open_lines(path) as opened:
            assert opened.whole() == text
            assert opened.fraction() == 1.0
        path.write_bytes(gzip.compress(content))
        assert read(path) == lines
        for damaged in (content[:-1], content + "\ud83c".encode(encoding, "surrogatepass")):
            path.write_bytes(damaged)
            with pytest.raises(UserError, match="txt: not valid UTF-(16|32): .*; save it as UTF-8"):
                read(path)
    long = tmp_path / "long.txt"
    long.write_text("é" * 3_000_000 + "\nend", "utf-16")
    assert read(long) == [(1, "é" * 3_000_000 + "\n"), (2, "end")]


def test_how_much_is_read(tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes(b"abcd\n" * 4)
    with open_lines(path) as lines:
        assert [lines.fraction() for _ in lines] == [0.25, 0.5, 0.75, 1.0]
    (tmp_path / "text.gz").write_bytes(gzip.compress(b"abcd\n" * 4))
    with open_lines(tmp_path / "text.gz") as lines:
        assert [lines.fraction() for _ in lines][-1] == 1.0


def test_a_pipe(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(b"one\ntwo\n",))
    writer.start()
    with open_lines(path) as lines:
        assert list(lines) == [(1, "one\n"), (2, "two\n")]
        assert lines.fraction() is None
    writer.join()


def test_utf_16_of_a_pipe_is_read_line_by_line(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    read_first = threading.Event()

    def write():
        with path.open("wb", buffering=0) as pipe:
            pipe.write("\ufeffone\nt".encode("utf-16-le"))
            assert read_first.wait(60)
            pipe.write("wo\n".encode("utf-16-le"))

    writer = threading.Thread(target=write)
    writer.start()
    with open_lines(path) as lines:
        numbered = iter(lines)
        assert next(numbered) == (1, "one\n")
        read_first.set()
        assert list(numbered) == [(2, "two\n")]
    writer.join()


def test_stdin(tmp_path, monkeypatch):
    path = tmp_path / "text.txt"
    path.write_bytes("\ufeffone\nzwölf".encode())
    with path.open() as file:
        monkeypatch.setattr("sys.stdin", file)
        with open_lines("-") as lines:
            assert lines.name == "stdin"
            assert list(lines) == [(1, "one\n"), (2, "zwölf")]
            assert lines.fraction() is None


def test_what_stands_in_place_of_stdin(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"one\ntwo")))
    with open_lines("-") as lines:
        assert list(lines) == [(1, "one\n"), (2, "two")]
    assert not may_wait("-")
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(UserError, match="stdin is closed; give a file"), open_lines("-"):
        pass


def test_what_may_wait(tmp_path, monkeypatch):
    path = tmp_path / "text.txt"
    path.write_text("one\n")
    os.mkfifo(tmp_path / "pipe")
    assert not may_wait(path)
    assert may_wait(tmp_path / "pipe")
    assert not may_wait("tfds:glue/mrpc")
    assert not may_wait("gs://bucket/text.txt")
    with path.open() as file:
        monkeypatch.setattr("sys.stdin", file)
        assert not may_wait("-")


def test_what_cannot_be_read(tmp_path):
    with pytest.raises(UserError, match="none.txt: cannot be read: No such file or directory"):
        read(tmp_path / "none.txt")
    with pytest.raises(UserError, match="cannot be read: Is a directory"):
        read(tmp_path)
    path = tmp_path / "latin.txt"
    path.write_bytes(b"fine\nd\xe9j\xe0 vu\n")
    with pytest.raises(UserError, match=r"latin.txt:2: byte 2 of the line \(0xe9\) is not UTF-8"):
        read(path)


def test_a_line_without_end_is_refused(tmp_path):
    path = tmp_path / "long.txt"
    path.write_bytes(b"short\n")
    os.truncate(path, (64 << 20) + 100)
    with pytest.raises(UserError, match="long.txt:2: the line is longer than the limit of 64 MiB"):
        read(path)
