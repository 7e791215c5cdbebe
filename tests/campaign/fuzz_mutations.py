"""Changes of a valid file, drawn by Hypothesis: bytes of any file, values of JSON, lines."""

import json
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st

NUMBERS = (0, 1, 2, 7, 255, 2**15, 2**31 - 1, 2**31, 2**32, 2**53, 2**63, 10**9, 10**12, 10**400)
VALUES: tuple[Any, ...] = (
    *(None, True, False, "", "a", "\ud800", "0", "é" * 300, "x" * 100_000, "\x00"),
    *("../../etc/passwd", *NUMBERS, *(-number for number in NUMBERS), 0.5, 1e300),
    *(float("nan"), float("inf"), [], {}, [[]], [None], [0] * 1000, {"": {}}),
    *({"type": "Sequence"}, {"a": {"b": {"c": [1]}}}),
)
PIECES = (
    *rb"""[ ] { } : , " "" ' # - = . NaN 1e999 null \u \ud800 [UNK] ## -DOCSTART- O""".split(),
    *(b"\x00", b"\xff", b"\xef\xbb\xbf", b"\r", b"\n", b"\r\n", b"\n\n", b"\t", b" "),
    *("é中\u2028\U0001f600".encode(), b"\xed\xa0\x80", b"PK\x03\x04"),
    *(piece * 5000 for piece in (b"(", b"[", b"9", b"a")),
)
Draw = Callable[[st.SearchStrategy[Any]], Any]


@st.composite
def changed(draw: Draw, content: bytes, name: str) -> bytes:
    """A file with one to four changes that suit its kind, which its extension says."""
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
    before, middle, after = content[:start], content[start:stop], content[stop:]
    match draw(st.sampled_from(("flip", "cut", "end", "repeat", "insert", "splice", "number"))):
        case "flip" if start < size:
            return (
                before
                + bytes([content[start] ^ 1 << draw(st.integers(0, 7))])
                + content[start + 1 :]
            )
        case "cut":
            return before + after
        case "end":
            return before
        case "repeat":
            return before + middle * draw(st.sampled_from((2, 3, 101))) + after
        case "splice":
            return before + content[draw(st.integers(0, size)) :]
        case "number":
            width = draw(st.sampled_from((1, 2, 4, 8)))
            number = draw(st.sampled_from(NUMBERS)) % (1 << 8 * width)
            return before + number.to_bytes(width, "little") + content[start + width :]
    return before + draw(st.sampled_from(PIECES)) + content[start:]


def _json(draw: Draw, content: bytes) -> bytes:
    """Replaces, removes, copies, nests or renames a value; other content has its bytes changed."""
    try:
        whole = json.loads(content)
    except (ValueError, RecursionError):
        return _bytes(draw, content)
    if not isinstance(whole, dict | list) or not whole:
        return json.dumps(draw(st.sampled_from(VALUES))).encode()
    parent = whole
    while True:  # down to a container, one of whose values is changed
        keys = list(parent) if isinstance(parent, dict) else list(range(len(parent)))
        key = draw(st.sampled_from(keys))
        value = parent[key]
        if not isinstance(value, dict | list) or not value or draw(st.integers(0, 3)) == 0:
            break
        parent = value
    match draw(st.sampled_from(("value", "value", "remove", "copy", "nest", "rename", "number"))):
        case "remove":
            del parent[key]
        case "copy":
            parent[key] = parent[draw(st.sampled_from(keys))]
        case "nest":
            depth, text = draw(st.sampled_from((1, 90, 2000))), json.dumps(value)
            parent[key] = "@"
            nested = "[" * depth + text + "]" * depth
            return json.dumps(whole).replace('"@"', nested, 1).encode()
        case "rename" if isinstance(parent, dict):
            name = draw(st.sampled_from(("", "type", "vocab", "é", "-2", "0", "9")))
            parent[name] = parent.pop(key)
        case "number" if isinstance(value, int):
            parent[key] = value + draw(st.sampled_from((-1, 1, 2**31, -(2**31))))
        case _:
            parent[key] = draw(st.sampled_from(VALUES))
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
            value = draw(st.sampled_from(VALUES))
            text = value if isinstance(value, str) else repr(value)
            fields[draw(st.integers(0, len(fields) - 1))] = text.encode(errors="surrogatepass")
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
