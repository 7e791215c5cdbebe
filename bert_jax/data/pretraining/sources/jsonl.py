"""`jsonl:PATTERN`: one JSON object per line, one document in its field `data.field`."""

import json
from collections.abc import Iterator
from pathlib import Path

from bert_jax.data.pretraining.sources.files import FileSource
from bert_jax.data.pretraining.sources.source import Block, SourceSpec, document_blocks
from bert_jax.errors import UserError


def open_source(spec: SourceSpec, place: str) -> "JsonLinesSource":
    """Finds the files; called by `bert_jax.data.pretraining.sources.open_source`."""
    return JsonLinesSource(spec, place)


class JsonLinesSource(FileSource):
    """Documents of JSON lines; blank lines are passed over."""

    def blocks(self) -> Iterator[Block]:
        """See `Source.blocks`."""
        for path in self.paths:
            for number, line in self.numbered_lines(path):
                if line.strip():
                    text = self._text(line, path, number)
                    yield from document_blocks(text, self.spec.paragraphs)

    def _text(self, line: str, path: Path, number: int) -> str:
        place = f"{path}:{number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            reason = str(error)
            if isinstance(error, json.JSONDecodeError):
                reason = f"{error.msg}, column {error.colno}"
            raise UserError(
                f"{place}: not valid JSON: {reason}; mend or remove the line"
            ) from error
        if not isinstance(record, dict):
            raise UserError(f"{place}: not a JSON object but {type(record).__name__}")
        field = self.spec.field
        if field not in record:
            there = ", ".join(map(repr, record)) or "none"
            raise UserError(
                f"{place}: no field {field!r}; fields there: {there}; set data.field to one of them"
            )
        if not isinstance(record[field], str):
            raise UserError(
                f"{place}: field {field!r} is not a string but {type(record[field]).__name__}"
            )
        return self._without_surrogates(record[field], place)

    def _without_surrogates(self, text: str, place: str) -> str:
        r"""JSON can spell half of a surrogate pair ("\ud83d"), which no encoding can write."""
        try:
            text.encode()
        except UnicodeEncodeError as error:
            if self.spec.errors == "strict":
                raise UserError(
                    f"{place}: field {self.spec.field!r} has half a surrogate pair at character "
                    f"{error.start + 1}; set data.errors=replace to read ? in its place"
                ) from error
            return text.encode(errors="replace").decode()
        return text
