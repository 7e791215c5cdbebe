"""The files that SQuAD's official scripts read, and those that google-research/bert writes."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bert_jax.files import write_atomically
from bert_jax.tasks.question_answering.spans import Spans


def write_squad_files(
    directory: Path,
    stem: str,
    identities: Sequence[str],
    found: Sequence[Spans],
    null_threshold: float | None,
) -> None:
    """Writes the answers to questions.

    `<stem>.predictions.json` is `{id: text}`, `<stem>.nbest_predictions.json` gives each question
    its best spans, and `<stem>.null_odds.json` how much better than those no answer is: what the
    2.0 script takes as `--na-prob-file`.

    Args:
        directory: exists.
        stem: how the names begin.
        identities: of the questions.
        found: their spans.
        null_threshold: "" is the answer where no answer is so much better; None: never, and there
            is no third file.
    """
    with_null = null_threshold is not None
    predictions: dict[str, Any] = {}
    best: dict[str, Any] = {}
    for identity, spans in zip(identities, found, strict=True):
        predictions[identity] = spans.answer(null_threshold).text
        best[identity] = n_best(spans, with_null=with_null)
    files = {"predictions": predictions, "nbest_predictions": best}
    if with_null:
        odds = {of: spans.null_odds for of, spans in zip(identities, found, strict=True)}
        files["null_odds"] = odds
    for name, content in files.items():
        text = json.dumps(content, ensure_ascii=False, indent=1) + "\n"
        write_atomically(directory / f"{stem}.{name}.json", text.encode())


def n_best(found: Spans, *, with_null: bool) -> list[dict[str, Any]]:
    """The best spans of a question as google-research/bert writes them."""
    return [
        {
            "text": span.text,
            "probability": chance,
            "start_logit": span.start_logit,
            "end_logit": span.end_logit,
        }
        for span, chance in found.n_best(with_null=with_null)
    ]
