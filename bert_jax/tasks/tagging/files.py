"""Predicted tags as a file in columns."""

from collections.abc import Sequence

from bert_jax.data.examples import TaggedSentence
from bert_jax.data.readers.conll import as_columns, read_blocks
from bert_jax.data.readers.lines import STDIN, open_lines
from bert_jax.data.readers.tagged import TaggedOptions
from bert_jax.tasks.base.splits import EvalSet


def tagged_file(
    part: EvalSet[TaggedSentence], tags: Sequence[Sequence[str]], options: TaggedOptions
) -> str:
    """The sentences with a further column.

    If they are from a file in columns, the lines are those of the file, and what stands between its
    sentences comes along; if they are a part of it, the other sentences are left out.

    Args:
        part: the sentences.
        tags: those of each sentence, as they are to be written.
        options: how its file was read.
    """
    return _as_in_file(part, tags, options) or "".join(
        as_columns(example.words, *([example.tags] if example.tags else []), of_one)
        for example, of_one in zip(part.examples, tags, strict=True)
    )


def _as_in_file(
    part: EvalSet[TaggedSentence], tags: Sequence[Sequence[str]], options: TaggedOptions
) -> str | None:
    """The lines of the file; None where the sentences are not all from one in columns."""
    if part.source == STDIN or not options.is_conll(part.source):
        return None
    by_place = dict(zip((example.place for example in part.examples), tags, strict=True))
    found, pieces = 0, []
    with open_lines(part.source) as lines:
        for block in read_blocks(lines, options.columns):
            place = block.sentence.place
            if block.sentence.words and place in by_place:
                pieces.append(block.tagged(by_place[place]))
                found += 1
            elif not block.sentence.words:
                pieces.append("".join(block.lines))
    return "".join(pieces) if found == len(part.examples) else None
