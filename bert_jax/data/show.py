"""Training examples as a person reads them."""

import numpy as np

from bert_jax.data.pipeline import Batch
from bert_jax.tokenization.interface import Tokenizer

_LABELS = {
    "nsp": ("the second sentence is the next one", "the second sentence is random"),
    "sop": ("the two are in order", "the two are swapped"),
}


def as_text(batch: Batch, tokenizer: Tokenizer, objective: str) -> str:
    """Tokens with each masked one as `shown←original`, then lengths and label, per example.

    Args:
        batch: from `PretrainingBatches`.
        tokenizer: that made the ids.
        objective: "nsp", "sop" or "none".
    """
    return "\n\n".join(
        _row_as_text({key: value[row] for key, value in batch.items()}, tokenizer, objective, row)
        for row in range(len(batch["input_ids"]))
    )


def _row_as_text(row: Batch, tokenizer: Tokenizer, objective: str, number: int) -> str:
    length = int(row["attention_mask"].sum())
    pieces = [tokenizer.id_to_token(int(token)) for token in row["input_ids"][:length]]
    masked = row["masked_lm_weights"] > 0
    positions, originals = row["masked_lm_positions"][masked], row["masked_lm_ids"][masked]
    for position, original in zip(positions, originals, strict=True):
        pieces[position] += f"←{tokenizer.id_to_token(int(original))}"
    second = int(np.sum(row["token_type_ids"]))
    lines = [
        f"example {number}: {length} tokens ({length - second} + {second}), "
        f"{len(row['input_ids']) - length} of padding, {len(positions)} masked",
        "  " + " ".join(pieces[: length - second]),
    ]
    if second:
        lines.append("  " + " ".join(pieces[length - second :]))
    if objective in _LABELS:
        label = int(row["next_sentence_labels"])
        lines.append(f"  label {label}: {_LABELS[objective][label]}")
    return "\n".join(lines)
