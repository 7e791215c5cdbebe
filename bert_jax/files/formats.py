"""Formats of files that are no text, by their first bytes."""

GZIP, BZIP2, XZ, ZSTANDARD = "gzip data", "bzip2 data", "xz data", "Zstandard data"

# The first bytes at an offset, and the format. All have bytes that no text of UTF-8 begins with, or
# a mark that no text begins with.
_FORMATS = (
    (0, b"\x1f\x8b", GZIP),
    (0, b"\xfd7zXZ\0", XZ),
    *((0, b"BZh%d1AY&SY" % level, BZIP2) for level in range(1, 10)),
    (0, b"\x28\xb5\x2f\xfd", ZSTANDARD),
    (0, b"\x04\x22\x4d\x18", "LZ4 data"),
    (0, b"PK\x03\x04", "a zip archive, as .docx, .xlsx, .epub and .npz files are"),
    (0, b"PK\x05\x06", "an empty zip archive"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
    (0, b"Rar!\x1a\x07", "a RAR archive"),
    (257, b"ustar", "a tar archive"),
    (0, b"PAR1\x15", "a Parquet file"),
    (0, b"ARROW1\0\0", "an Arrow file"),
    (0, b"\xff\xff\xff\xff", "an Arrow stream"),
    (0, b"FEA1\0", "a Feather file"),
    (0, b"Obj\x01", "an Avro file"),
    (0, b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
    (0, b"SQLite format 3\0", "an SQLite database"),
    (0, b"\x93NUMPY", "a NumPy file"),
    *((0, bytes([0x80, protocol]), "a pickle") for protocol in range(2, 6)),
    (0, b"%PDF-", "a PDF file"),
    (0, b"{\\rtf", "an RTF document"),
    (0, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old Office document, as .doc and .xls files are"),
    (0, b"\x89PNG\r\n\x1a\n", "a PNG image"),
    (0, b"\xff\xd8\xff", "a JPEG image"),
)

FIRST_BYTES = max(offset + len(magic) for offset, magic, _ in _FORMATS)
"""The number of bytes that `format_of` compares."""


def format_of(first: bytes) -> str:
    """The format of a file that begins with these bytes, with its article; "" if it may be text."""
    return next((what for at, magic, what in _FORMATS if first.startswith(magic, at)), "")
