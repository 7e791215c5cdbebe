"""`python-docs:`: English text that comes with every CPython, for a first run without any data.

One document per topic of `help()`, then one per module of the standard library: its docstring and
the docstrings of its classes and functions in the order of the source, which is read, never
imported. This text is hard-wrapped and full of code; only paragraphs of prose are kept, each joined
to one line.
"""

import ast
import functools
import importlib
import re
import sys
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from bert_jax.data.pretraining.sources import Block, Source, SourceSpec, document_blocks

_SKIPPED_FOLDERS = {
    "__pycache__", "dist-packages", "encodings", "idlelib", "lib2to3", "site-packages", "test",
    "tests", "turtledemo",
}  # fmt: skip
_Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
_BULLET = re.compile(r"(?:[*•-]|\d+[.)])\s+")
_PROSE_SHARE = 0.85


class PythonDocs(Source):
    """Topics and docstrings of the running interpreter."""

    def __init__(self, spec: SourceSpec, location: str = "", *, library: Path | None = None):
        if location:
            raise spec.error("nothing may follow 'python-docs:'")
        library = library or Path(sysconfig.get_path("stdlib"))
        self._paths = sorted(
            path
            for path in library.rglob("*.py")
            if not _SKIPPED_FOLDERS.intersection(path.relative_to(library).parts)
        )
        if not self._paths:
            raise spec.error(f"this Python has no source files in {library}; use another Python")
        super().__init__(spec, sum(path.stat().st_size for path in self._paths))

    def identity(self) -> dict[str, object]:
        """The interpreter's version and the size of the source."""
        return {"python": sys.version, "files": len(self._paths), "bytes": self.size}

    def blocks(self) -> Iterator[Block]:
        # Parsing takes seconds and the text is small, so it is cached for the second reading.
        yield from self._all_blocks
        self.position = self.size

    @functools.cached_property
    def _all_blocks(self) -> list[Block]:
        blocks: list[Block] = []
        topics = _topics()
        for name in sorted(topics):
            blocks.extend(document_blocks(prose(topics[name]), "lines"))
        for path in self._paths:
            blocks.extend(document_blocks("\n".join(map(prose, _docstrings(path))), "lines"))
        return blocks


def _topics() -> dict[str, str]:
    try:
        return cast(dict[str, str], importlib.import_module("pydoc_data.topics").topics)
    except ImportError as error:
        raise SourceSpec("python-docs:").error(
            "this Python lacks pydoc_data; use another Python"
        ) from error


def _docstrings(path: Path) -> Iterator[str]:
    """Docstrings of a module and its definitions, in the order of the source."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # old escapes in strings
            module = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):  # a template, or a broken file of a package
        return
    yield from _docstrings_below(module)


def _docstrings_below(node: _Documented) -> Iterator[str]:
    yield ast.get_docstring(node) or ""
    for child in node.body:
        if isinstance(child, _Documented):
            yield from _docstrings_below(child)


def prose(text: str) -> str:
    """The paragraphs of prose in a docstring, one per line; code, tables and rules are dropped."""
    paragraphs: list[list[str]] = [[]]
    for raw_line in text.split("\n"):
        line = raw_line.strip()
        if not line or line.startswith((">>>", "...")):
            paragraphs.append([])
        elif bullet := _BULLET.match(line):
            paragraphs.append([line[bullet.end() :]])
        else:
            paragraphs[-1].append(line)
    joined = (" ".join(paragraph) for paragraph in paragraphs)
    return "\n".join(paragraph for paragraph in joined if _is_prose(paragraph))


def _is_prose(paragraph: str) -> bool:
    """Whether a paragraph ends like a sentence and consists of words rather than of symbols."""
    if paragraph[-1:] not in {".", "!", "?", ":", ")", '"', "”"} or paragraph.count(" ") < 3:
        return False
    letters = sum(character.isalpha() or character == " " for character in paragraph)
    return letters >= _PROSE_SHARE * len(paragraph)
