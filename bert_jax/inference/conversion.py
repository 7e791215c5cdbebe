"""From one kind of files to another, with or without more words and positions."""

from pathlib import Path

from bert_jax.checkpoints import google_files
from bert_jax.errors import UserError
from bert_jax.files import is_remote
from bert_jax.inference.loading import load
from bert_jax.inference.model import LoadedModel


def convert(
    source: str | Path,
    output: Path,
    *,
    task: str | None = None,
    to: str = "huggingface",
    hidden_act: str | None = None,
    words: Path | None = None,
    positions: int | None = None,
) -> LoadedModel:
    """Reads a model of any kind that `load` takes and writes it as another kind.

    Args:
        source: as in `load`.
        output: a directory for the result; for Google's files also a prefix in it.
        task: the model to make, as in `load`.
        to: "huggingface", a model directory; "google", files of google-research/bert.
        hidden_act: in place of what the config says, as in `load`.
        words: a file of words to add, one a line.
        positions: the new length of the position table.

    Returns:
        The model that was written.

    Raises:
        UserError: the source is no such model, or cannot be written so.
    """
    model = load(source, task, hidden_act=hidden_act)
    if words is not None:
        try:
            model = model.add_words(_read_words(words))
        except UserError as error:
            raise UserError(f"{words}: {error}") from error
    if positions is not None:
        model = model.extend_positions(positions)
    if to == "google":
        if is_remote(output):
            raise UserError(f"{output}: Google's files are written to this machine; copy them then")
        google_files.save(output, model.description, model.params, model.tokenizer)
    else:
        model.save(output)
    return model


def _read_words(path: Path) -> list[str]:
    """The words of a file; empty lines say nothing."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise UserError(f"{error.strerror}; give a file of words") from error
    except UnicodeDecodeError as error:
        raise UserError(f"byte {error.start} is not UTF-8; save it as UTF-8") from error
    words = [word for word in map(str.strip, lines) if word]
    if not words:
        raise UserError("there are no words; give one a line")
    return words
