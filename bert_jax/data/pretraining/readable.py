"""Pre-training examples as readable text."""

from collections.abc import Iterator

import numpy as np

from bert_jax.data.pipeline import Batch
from bert_jax.tokenization.interface import Tokenizer

LABELS = {
    "nsp": ("the second sentence is the next one", "the second sentence is random"),
    "sop": ("the two are in order", "the two are swapped"),
}


def as_text(batch: Batch, tokenizer: Tokenizer, objective: str) -> str:
    """Formats examples: tokens (masked ones as `shown←original`), lengths and label.

    Args:
        batch: batch of `PretrainingBatches` or `PackedBatches`.
        tokenizer: tokenizer that made the ids.
        objective: "nsp", "sop" or "none".
    """
    blocks = []
    for number in range(len(batch["input_ids"])):
        row = {key: value[number] for key, value in batch.items()}
        if "segment_ids" not in row:
            blocks.append(_example_as_text(row, tokenizer, objective, f"example {number}"))
            continue
        examples = list(_examples_of(row))
        padding = np.count_nonzero(row["segment_ids"] == 0)
        blocks.append(
            f"row {number}: {len(row['segment_ids']) - padding} tokens, {padding} of padding, "
            f"examples: {len(examples)}"
        )
        blocks += [
            _example_as_text(example, tokenizer, objective, f"row {number}, example {index}")
            for index, example in enumerate(examples)
        ]
    return "\n\n".join(blocks)


def _examples_of(row: Batch) -> Iterator[Batch]:
    """The examples of a packed row, each as an unpacked row without padding."""
    is_masked = row["masked_lm_weights"] > 0
    for number in range(1, row["segment_ids"].max() + 1):
        inside = row["segment_ids"] == number
        masked = is_masked & inside[row["masked_lm_positions"]]
        example = {name: row[name][inside] for name in ("input_ids", "token_type_ids")}
        example["attention_mask"] = inside[inside]
        for name, values in row.items():
            if name.startswith(("masked_lm_", "span_")):
                example[name] = values[masked] - inside.argmax() * name.endswith("_positions")
        if "next_sentence_labels" in row:
            example["next_sentence_labels"] = row["next_sentence_labels"][number - 1]
        yield example


def _example_as_text(row: Batch, tokenizer: Tokenizer, objective: str, name: str) -> str:
    length = int(row["attention_mask"].sum())
    pieces = [tokenizer.readable_token(int(token)) for token in row["input_ids"][:length]]
    masked = row["masked_lm_weights"] > 0
    positions, originals = row["masked_lm_positions"][masked], row["masked_lm_ids"][masked]
    for position, original in zip(positions, originals, strict=True):
        pieces[position] += f"←{tokenizer.readable_token(int(original))}"
    second = int(np.sum(row["token_type_ids"]))
    lines = [
        f"{name}: {length} tokens ({length - second} + {second}), "
        f"{len(row['input_ids']) - length} of padding, {len(positions)} masked",
        "  " + " ".join(pieces[: length - second]),
    ]
    if second:
        lines.append("  " + " ".join(pieces[length - second :]))
    if "span_weights" in row:
        lines += _boundaries(row, tokenizer)
    if objective in LABELS:
        label = int(row["next_sentence_labels"])
        lines.append(f"  label {label}: {LABELS[objective][label]}")
    return "\n".join(lines)


def _boundaries(row: Batch, tokenizer: Tokenizer) -> Iterator[str]:
    """The spans that are predicted from the tokens next to them, one a line."""
    spans: dict[tuple[int, int], list[int]] = {}
    for index in np.flatnonzero(row["span_weights"]):
        ends = row["span_left_positions"][index], row["span_right_positions"][index]
        spans.setdefault(ends, []).append(int(row["masked_lm_ids"][index]))
    for ends, ids in spans.items():
        left, right = (tokenizer.readable_token(int(row["input_ids"][end])) for end in ends)
        words = " ".join(map(tokenizer.readable_token, ids))
        yield f"  from {left} and {right}, the tokens next to them: {words}"
