"""`text:PATTERN`: plain text files in one of three layouts (`SourceSpec.format`)."""

import html
import re
from collections.abc import Iterator
from pathlib import Path

from bert_jax.data.pretraining.sources.files import FileSource
from bert_jax.data.pretraining.sources.source import Block, BlockBuilder, SourceSpec
from bert_jax.errors import UserError

_DOCUMENT_TAG = re.compile(r"<doc(\s[^<>]*)?>$")
_TITLE = re.compile(r'\btitle="([^"]*)"')


def open_source(spec: SourceSpec, place: str) -> "TextSource":
    """Finds the files; called by `bert_jax.data.pretraining.sources.open_source`."""
    return TextSource(spec, place)


class TextSource(FileSource):
    """Documents of text files; a document never goes on into the next file."""

    def blocks(self) -> Iterator[Block]:
        """See `Source.blocks`."""
        for path in self.paths:
            layout = self.spec.format
            if layout == "auto":
                layout = self._detect(path)
            if layout == "wikiextractor":
                yield from self._tagged_documents(path)
            else:
                yield from self._documents(path, one_per_line=layout == "lines")

    def _detect(self, path: Path) -> str:
        for _, line in self.numbered_lines(path):
            if line.strip():
                return "wikiextractor" if _DOCUMENT_TAG.match(line.strip()) else "bert"
        return "bert"

    def _documents(self, path: Path, one_per_line: bool) -> Iterator[Block]:
        builder = BlockBuilder()
        for _, line in self.numbered_lines(path):
            if block := builder.add(line):
                yield block
            ends = one_per_line or not line.strip()
            if ends and (block := builder.end_document()):
                yield block
        if block := builder.end_document():
            yield block

    def _tagged_documents(self, path: Path) -> Iterator[Block]:
        """Documents in WikiExtractor's `<doc id=… title=…>` … `</doc>`.

        The title that is repeated as the first line is left out, so that a redirect or a stub
        without text is not a document.
        """
        builder = BlockBuilder()
        inside, title = False, ""
        for number, line in self.numbered_lines(path):
            stripped = line.strip()
            if tag := _DOCUMENT_TAG.match(stripped):
                found = _TITLE.search(tag.group(1) or "")
                inside, title = True, html.unescape(found.group(1)) if found else ""
            elif stripped == "</doc>":
                inside = False
            elif stripped and not inside:
                raise UserError(
                    f"{path}:{number}: text outside of <doc …> and </doc>; "
                    "set data.format=bert to read the file as plain text"
                )
            elif stripped and title == stripped:
                title = ""
                continue
            else:
                # Only the first line of text can be the title.
                title = "" if stripped else title
                if block := builder.add(line):
                    yield block
                continue
            if block := builder.end_document():
                yield block
        if block := builder.end_document():
            yield block
