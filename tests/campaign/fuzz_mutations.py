"""Changes of a valid file, drawn by Hypothesis: bytes of any file, values of JSON, lines."""

import json
import struct
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st

NUMBERS = (0, -1, 1, 2, 7, 255, 2**15, 2**31 - 1, 2**31, 2**32, 2**53, 2**63, 10**9, 10**12, 10**40)
VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        "",
        "a",
        "\ud800",
        "0",
        "é" * 300,
        "x" * 100_000,
        "\x00",
        "../../etc/passwd",
    ),
    *(*NUMBERS, *(-number for number in NUMBERS), 0.5, 1e300, float("nan"), float("inf")),
    *([], {}, [[]], [None], [0] * 1000, {"": {}}, {"type": "Sequence"}, {"a": {"b": {"c": [1]}}}),
)
PIECES = (
    *(
        b"\x00",
        b"\xff",
        b"\xef\xbb\xbf",
        b"\r",
        b"\n",
        b"\r\n",
        b"\n\n",
        b"\t",
        b" ",
        b",",
        b'"',
        b'""',
    ),
    *(
        b"'",
        b"#",
        b"{",
        b"}",
        b"[",
        b"]",
        b":",
        b"\\u",
        b"\\ud800",
        b"-",
        b"NaN",
        b"1e999",
        b"null",
    ),
    *(b"\xe2\x80\xa8", b"\xed\xa0\x80", b"[UNK]", b"##", b"(" * 3000, b"[" * 3000, b"9" * 5000),
    *("é中\U0001f600".encode(), b"-DOCSTART-", b"O", b"a" * 5000, b"=", b".", b"PK\x03\x04"),
)
_WORDS = ("<b", "<h", "<i", "<q", "<d")

Draw = Callable[[st.SearchStrategy[Any]], Any]


@st.composite
def changed(draw: Draw, content: bytes, name: str) -> bytes:
    """A file with one to four changes that suit its kind.

    Args:
        draw: draws of Hypothesis.
        content: a valid file.
        name: its name; the extension says what it holds.
    """
    kinds: list[Callable[[Draw, bytes], bytes]] = [_bytes]
    if name.endswith(".json"):
        kinds += [_json, _json]
    elif name.endswith((".jsonl", ".txt", ".tsv", ".csv", ".conll", ".overrides")):
        kinds += [_lines, _lines]
    elif name.endswith(".safetensors"):
        kinds += [_header, _header]
    for _ in range(draw(st.integers(1, 4))):
        content = draw(st.sampled_from(kinds))(draw, content)
    return content


def _bytes(draw: Draw, content: bytes) -> bytes:
    """Flips, cuts, repeats, inserts or overwrites bytes."""
    size = len(content)
    start = draw(st.integers(0, size))
    stop = min(size, start + draw(st.sampled_from((0, 1, 2, 4, 8, 64, 1000))))
    match draw(st.sampled_from(("flip", "cut", "end", "repeat", "insert", "splice", "number"))):
        case "flip" if start < size:
            bit = content[start] ^ (1 << draw(st.integers(0, 7)))
            return content[:start] + bytes([bit]) + content[start + 1 :]
        case "cut":
            return content[:start] + content[stop:]
        case "end":
            return content[:start]
        case "repeat":
            times = draw(st.sampled_from((1, 2, 100)))
            return content[:stop] + content[start:stop] * times + content[stop:]
        case "splice":
            other = draw(st.integers(0, size))
            return content[:start] + content[other:]
        case "number":
            form = draw(st.sampled_from(_WORDS))
            number = draw(st.sampled_from(NUMBERS))
            limit = 1 << (8 * struct.calcsize(form))
            word = (
                struct.pack("<d", float(number))
                if form == "<d"
                else (number % limit).to_bytes(struct.calcsize(form), "little")
            )
            return content[:start] + word + content[start + len(word) :]
    return content[:start] + draw(st.sampled_from(PIECES)) + content[start:]


def _json(draw: Draw, content: bytes) -> bytes:
    """Replaces, removes, moves or nests a value of JSON; other content has its bytes changed."""
    try:
        whole = json.loads(content)
    except (ValueError, RecursionError):
        return _bytes(draw, content)
    if not isinstance(whole, dict | list) or not whole:
        return json.dumps(draw(st.sampled_from(VALUES))).encode()
    place = whole
    while True:  # down to a container, some of whose values are changed
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = draw(st.sampled_from(keys))
        inner = place[key]
        if not isinstance(inner, dict | list) or not inner or draw(st.integers(0, 3)) == 0:
            break
        place = inner
    match draw(st.sampled_from(("value", "value", "remove", "copy", "nest", "rename", "number"))):
        case "remove":
            del place[key]
        case "copy":
            place[key] = place[draw(st.sampled_from(keys))]
        case "nest":
            depth = draw(st.sampled_from((1, 90, 2000)))
            text = json.dumps(inner)
            place[key] = "@"
            nested = json.dumps(whole).replace('"@"', "[" * depth + text + "]" * depth, 1)
            return nested.encode()
        case "rename" if isinstance(place, dict):
            place[
                draw(st.sampled_from(("", "type", "vocab", "é", str(draw(st.integers(-2, 9))))))
            ] = place.pop(key)
        case "number" if isinstance(inner, int):
            place[key] = inner + draw(st.sampled_from((-1, 1, 2**31, -(2**31))))
        case _:
            place[key] = draw(st.sampled_from(VALUES))
    return json.dumps(whole).encode()


def _lines(draw: Draw, content: bytes) -> bytes:
    """Changes a line, a field of it, or its JSON; removes, repeats or swaps lines."""
    lines = content.splitlines(keepends=True)
    if not lines:
        return _bytes(draw, content)
    index, other = (draw(st.integers(0, len(lines) - 1)) for _ in range(2))
    line = lines[index]
    match draw(st.sampled_from(("line", "json", "field", "remove", "repeat", "swap"))):
        case "line":
            lines[index] = _bytes(draw, line)
        case "json":
            lines[index] = _json(draw, line).replace(b"\n", b"") + b"\n"
        case "field":
            separator = draw(st.sampled_from((b"\t", b",", b" ", b"=")))
            fields = line.rstrip(b"\n").split(separator)
            place = draw(st.integers(0, len(fields) - 1))
            value = draw(st.sampled_from(VALUES))
            text = value if isinstance(value, str) else repr(value)
            fields[place] = text.encode(errors="surrogatepass")
            lines[index] = separator.join(fields) + b"\n"
        case "remove":
            del lines[index]
        case "repeat":
            lines[index] = line * draw(st.sampled_from((2, 300)))
        case "swap":
            lines[index], lines[other] = lines[other], lines[index]
    return b"".join(lines)


def _header(draw: Draw, content: bytes) -> bytes:
    """Changes the JSON header of a safetensors file and corrects its length."""
    length = int.from_bytes(content[:8], "little")
    header = _json(draw, content[8 : 8 + length])
    return len(header).to_bytes(8, "little") + header + content[8 + length :]
