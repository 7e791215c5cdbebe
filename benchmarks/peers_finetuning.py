r"""Fine-tuning by PyTorch and transformers as their examples do it (run_glue, run_ner).

    python -m benchmarks.peers_finetuning mrpc --train train.tsv --validation dev.tsv --model DIR

Fast tokenizers, batches in random order padded to their longest row, AdamW without decay of biases
and LayerNorm, a linear warm-up over a tenth of the steps and a linear decay, gradients clipped at
1, bfloat16 by autocast, one evaluation at the end. Prints the scores of scikit-learn and seqeval.
"""

import argparse
import csv
import io
import json
import math
from pathlib import Path
from typing import Any

import torch
import transformers

from benchmarks.samples import read_text

IGNORED = -100  # a label that takes no part in the loss


def read(task: str, path: Path) -> tuple[list[Any], list[Any]]:
    """Pairs and labels of MRPC; words and tags of CoNLL-2003."""
    text = read_text(path)
    rows: list[Any]
    if task == "mrpc":
        table = csv.DictReader(io.StringIO(text), delimiter="\t", quoting=csv.QUOTE_NONE)
        rows = [((row["#1 String"], row["#2 String"]), row["Quality"]) for row in table]
    else:
        blocks = [block.splitlines() for block in text.split("\n\n") if block]
        rows = [tuple(zip(*(line.split("\t") for line in lines), strict=True)) for lines in blocks]
    return [inputs for inputs, _ in rows], [labels for _, labels in rows]


def encode(
    task: str, tokenizer: Any, inputs: list[Any], length: int
) -> tuple[list[Any], list[Any]]:
    """The encodings of rows, and for CoNLL-2003 the first token of each word, which is tagged."""
    if task == "mrpc":
        encoded = tokenizer(
            *map(list, zip(*inputs, strict=True)), truncation=True, max_length=length
        )
    else:
        words = list(map(list, inputs))
        encoded = tokenizer(words, is_split_into_words=True, truncation=True, max_length=length)
    numbers = range(len(inputs))
    features = [{name: encoded[name][number] for name in encoded} for number in numbers]
    tokens = [list(enumerate(encoded.word_ids(number))) for number in numbers]
    return features, [{word: token for token, word in reversed(row)} for row in tokens]


def scores(task: str, truth: list[Any], found: list[Any], labels: list[str]) -> dict[str, float]:
    """Of the evaluation."""
    if task == "mrpc":
        from sklearn.metrics import accuracy_score, f1_score

        f1 = f1_score(truth, found, pos_label=labels[1])
        return {"accuracy": float(accuracy_score(truth, found)), "f1": float(f1)}
    from seqeval.metrics import f1_score

    return {"f1": float(f1_score(list(map(list, truth)), found))}


def train(model: Any, batches: Any, options: argparse.Namespace) -> None:
    """Trains all parameters."""
    groups: list[Any] = [{"params": [], "weight_decay": decay} for decay in (0.01, 0.0)]
    for name, parameter in model.named_parameters():
        groups[name.endswith(("bias", "LayerNorm.weight"))]["params"].append(parameter)
    optimizer = torch.optim.AdamW(groups, lr=options.rate, eps=1e-6, fused=True)
    steps = math.ceil(options.epochs * len(batches))
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, round(steps / 10), steps)
    model.train()
    in_epochs = (batch for _ in range(steps) for batch in batches)
    for _, batch in zip(range(steps), in_epochs, strict=False):
        with autocast(options):
            loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()


def autocast(options: argparse.Namespace) -> torch.autocast:
    """Within it, matmuls are of bfloat16 if requested."""
    return torch.autocast("cpu", torch.bfloat16, enabled=options.precision == "bfloat16")


def main() -> None:
    """Trains, predicts the validation file, and prints the scores."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=["mrpc", "conll2003"])
    for name in ("train", "validation", "model"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    defaults = {"seed": 0, "epochs": 3.0, "batch": 32, "rate": 5e-5, "length": 128}
    for name, value in (*defaults.items(), ("precision", "auto")):
        parser.add_argument(f"--{name}", type=type(value), default=value)
    options = parser.parse_args()
    transformers.set_seed(options.seed)
    task, is_tagging = options.task, options.task != "mrpc"
    tokenizer = transformers.AutoTokenizer.from_pretrained(options.model)
    inputs, truth = read(task, options.train)
    labels = sorted({label for row in truth for label in (row if is_tagging else [row])})
    auto: Any = transformers.AutoModelForSequenceClassification
    collator: Any = transformers.DataCollatorWithPadding
    if is_tagging:
        auto = transformers.AutoModelForTokenClassification
        collator = transformers.DataCollatorForTokenClassification
    model = auto.from_pretrained(options.model, dtype=torch.float32, num_labels=len(labels))
    features, firsts = encode(task, tokenizer, inputs, options.length)
    for feature, row, first in zip(features, truth, firsts, strict=True):
        feature["labels"] = [IGNORED] * len(feature["input_ids"])
        for word, token in first.items() if is_tagging else ():
            if word is not None:
                feature["labels"][token] = labels.index(row[word])
        if not is_tagging:
            feature["labels"] = labels.index(row)

    def loader(features: Any, **more: Any) -> Any:
        collate = collator(tokenizer)
        return torch.utils.data.DataLoader(features, options.batch, collate_fn=collate, **more)

    generator = torch.Generator().manual_seed(options.seed)
    train(model, loader(features, shuffle=True, generator=generator), options)
    inputs, truth = read(task, options.validation)
    features, firsts = encode(task, tokenizer, inputs, options.length)
    model.eval()
    found: list[Any] = []
    with torch.inference_mode(), autocast(options):
        for batch in loader(features):
            found += model(**batch).logits.argmax(-1).tolist()
    if is_tagging:  # words that are cut off have no tag
        found = [
            [labels[row[first[word]]] if word in first else "O" for word in range(len(words))]
            for row, first, words in zip(found, firsts, inputs, strict=True)
        ]
    else:
        found = [labels[label] for label in found]
    print(json.dumps(scores(task, truth, found, labels)))


if __name__ == "__main__":
    main()
