"""PyTorch with transformers on the batches of `generating.py`; see there.

`train` continues from its last checkpoint, `score` writes `peer.json`: the held-out cross-entropy
of both models, or BLEU of the translations of its own.
"""

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from benchmarks.samples import BEAMS, LONGEST, captions

SMOOTHING = {"translate": 0.1}
BATCH = 32  # texts that are translated together


def load(directory: Path, work: str) -> Any:
    """The model in a directory."""
    kind: Any = transformers.AutoModelForCausalLM
    if work != "gpt":
        kind = transformers.AutoModelForSeq2SeqLM
    return kind.from_pretrained(directory, dtype=torch.float32)


def batch_of(path: Path) -> dict[str, torch.Tensor]:
    """The arrays of a batch."""
    with np.load(path) as arrays:
        batch = {name: torch.from_numpy(arrays[name]) for name in arrays}
    return {name: array.long() if array.dtype == torch.int32 else array
            for name, array in batch.items()}  # fmt: skip


def sums(model: Any, batch: dict[str, torch.Tensor], smoothing: float) -> tuple[Any, Any]:
    """The summed loss of the tokens, and their weight."""
    inputs = {"input_ids": batch["input_ids"]}
    prefix = "decoder." if "decoder.input_ids" in batch else ""
    if "attention_mask" in batch:
        inputs["attention_mask"] = batch["attention_mask"]
    if prefix:
        inputs["decoder_input_ids"] = batch["decoder.input_ids"]
    logits = model(**inputs, use_cache=False).logits
    weights = batch[f"{prefix}weights"]
    log_probs = logits.log_softmax(-1)
    of_label = log_probs.gather(-1, batch[f"{prefix}labels"][..., None])[..., 0]
    loss = -of_label
    if smoothing:
        other = smoothing / (logits.shape[-1] - 1)
        loss = -(1 - smoothing - other) * of_label - other * log_probs.sum(-1)
    return (loss * weights).sum(), weights.sum()


def train(options: argparse.Namespace) -> None:
    """AdamW with a warm-up of a tenth of the steps and the inverse square root."""
    target = options.output / "peer"
    if target.exists():
        return
    torch.manual_seed(0)
    model = load(options.output / "initial", options.work).train()
    steps = len(list((options.output / "batches").iterdir()))
    warmup = round(0.1 * steps)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=options.rate, betas=(0.9, 0.98), eps=1e-9, weight_decay=0.0,
        fused=True,
    )  # fmt: skip

    def factor(step: int) -> float:
        return step / warmup if step < warmup else math.sqrt(max(warmup, 1) / max(step, 1))

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    parts = {"model": model, "optimizer": optimizer, "schedule": schedule}
    path = options.output / "peer.pt"
    first, seconds = 0, 0.0
    if path.exists():
        stored = torch.load(path, weights_only=False)
        first, seconds = stored["step"], stored["seconds"]
        for name, part in parts.items():
            part.load_state_dict(stored[name])
    start = time.perf_counter()
    for step in range(first, steps):
        batch = batch_of(options.output / f"batches/{step}.npz")
        loss, weight = sums(model, batch, SMOOTHING.get(options.work, 0.0))
        (loss / weight).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if (step + 1) % options.checkpoint_every == 0 or step + 1 == steps:
            now = seconds + time.perf_counter() - start
            print(f"step {step + 1}: loss {(loss / weight).item():.4f}, {now:.0f} s", flush=True)
            states = {name: part.state_dict() for name, part in parts.items()}
            torch.save(states | {"step": step + 1, "seconds": now}, path.with_suffix(".new"))
            path.with_suffix(".new").replace(path)
    (options.output / "peer-seconds.json").write_text(
        json.dumps(seconds + time.perf_counter() - start)
    )
    model.save_pretrained(target)
    transformers.AutoTokenizer.from_pretrained(options.output / "initial").save_pretrained(target)


def cross_entropy(directory: Path, options: argparse.Namespace) -> float:
    """The mean over the held-out tokens."""
    model = load(directory, options.work).eval()
    pairs = []
    with torch.inference_mode():
        for path in sorted((options.output / "held_out").iterdir()):
            pairs.append([float(part) for part in sums(model, batch_of(path), 0.0)])
    losses, weights = np.array(pairs).sum(axis=0)
    return float(losses / weights)


def translate(options: argparse.Namespace) -> dict[str, float]:
    """BLEU and seconds of the translations, sorted by length in batches."""
    import sacrebleu

    texts, targets = captions(options.data, options.evaluated)
    model = load(options.output / "peer", options.work).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(options.output / "initial")
    found = {}
    for beams in BEAMS:
        start = time.perf_counter()
        lines = [""] * len(texts)
        order = sorted(range(len(texts)), key=lambda number: -len(texts[number]))
        for first in range(0, len(order), BATCH):
            numbers = order[first : first + BATCH]
            encoded = tokenizer([texts[number] for number in numbers], return_tensors="pt",
                                padding=True)  # fmt: skip
            with torch.inference_mode():
                made = model.generate(**encoded, num_beams=beams, max_new_tokens=LONGEST,
                                      do_sample=False, length_penalty=1.0,
                                      early_stopping=False)  # fmt: skip
            written = tokenizer.batch_decode(made, skip_special_tokens=True)
            for number, line in zip(numbers, written, strict=True):
                lines[number] = line
        found[f"seconds of {beams}"] = round(time.perf_counter() - start, 1)
        (options.output / f"peer-{beams}.txt").write_text("\n".join(lines), encoding="utf-8")
        found[f"bleu of {beams}"] = round(sacrebleu.corpus_bleu(lines, [targets]).score, 2)
    return found


def main() -> None:
    """Trains or scores."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("verb", choices=["train", "score"])
    parser.add_argument("--work", required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--evaluated", type=int, default=1000)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--checkpoint-every", type=int, default=200)
    options = parser.parse_args()
    if options.verb == "train":
        train(options)
        return
    seconds = {"training seconds": json.loads((options.output / "peer-seconds.json").read_text())}
    results: dict[str, dict[str, float]] = {"transformers": seconds, "bert_jax": {}}
    if options.work == "translate":
        results["transformers"] |= translate(options)
    else:
        for name, directory in (("transformers", "peer"), ("bert_jax", "ours/model")):
            mean = cross_entropy(options.output / directory, options)
            results[name] |= {"cross_entropy": mean, "perplexity": math.exp(mean)}
    (options.output / "peer.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
