r"""The other side of `compare_finetuning.py`: PyTorch and Hugging Face transformers, one training.

    python launch/measure/finetuning_peer.py mrpc --train train.tsv --validation dev.tsv \
        --model DIR --predictions FILE.json

Tasks: mrpc (GLUE's columns), conll2003 (word, tab, tag), squad (1.1).
It does what the examples of transformers do (run_glue, run_ner, run_qa): fast tokenizers, batches
in random order padded to their longest row, AdamW without decay of biases and LayerNorm, a linear
warm-up over a tenth of the steps and a linear decay, gradients clipped at 1, float32 (bfloat16
by autocast if requested), one evaluation at the end. Windows of passages are cut as
google-research/bert cuts them.

Writes the predictions for the validation file and prints a line of JSON with times and with
metrics as scikit-learn and seqeval have them. Nothing of bert_jax is imported here.
"""

import time

STARTED = time.perf_counter()

import argparse  # noqa: E402
import json  # noqa: E402
import math  # noqa: E402
from collections.abc import Callable  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from peer_tasks import TASKS, TOKENS, Feature  # noqa: E402

INPUTS = (*TOKENS, "labels", "start_positions", "end_positions")


def of_model(features: list[Feature]) -> list[Feature]:
    """Without what only the reading of answers needs."""
    return [{name: one[name] for name in INPUTS if name in one} for one in features]


def loader(
    features: list[Feature], collate: Callable[[Any], Any], batch_size: int, seed: int | None
) -> torch.utils.data.DataLoader:
    """Batches in random order, or without a seed in the order of the rows."""
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    rows: Any = of_model(features)  # a list does, where PyTorch's types ask for a Dataset
    return torch.utils.data.DataLoader(
        rows,
        batch_size=batch_size,
        shuffle=seed is not None,
        generator=generator,
        collate_fn=collate,
    )


def train(model: Any, batches: torch.utils.data.DataLoader, options: argparse.Namespace) -> None:
    """Trains all parameters."""
    bare = [name.endswith(("bias", "LayerNorm.weight")) for name, _ in model.named_parameters()]
    groups = [
        {
            "params": [
                parameter
                for is_bare, parameter in zip(bare, model.parameters(), strict=True)
                if is_bare == without
            ],
            "weight_decay": 0.0 if without else 0.01,
        }
        for without in (False, True)
    ]
    optimizer = torch.optim.AdamW(groups, lr=options.learning_rate, eps=1e-6, fused=True)
    steps = math.ceil(options.epochs * len(batches))
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, round(steps / 10), steps)
    model.train()
    done = 0
    while done < steps:
        for batch in batches:
            with cast(options):
                loss = model(**batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            done += 1
            if done == steps:
                return


def cast(options: argparse.Namespace) -> torch.autocast:
    """Within it, products are of bfloat16 if requested."""
    return torch.autocast("cpu", torch.bfloat16, enabled=options.precision == "bfloat16")


def outputs_of(
    model: Any, batches: torch.utils.data.DataLoader, options: argparse.Namespace
) -> list[dict[str, np.ndarray]]:
    """The outputs of each row, by their names."""
    results: list[dict[str, np.ndarray]] = []
    model.eval()
    with torch.inference_mode(), cast(options):
        for batch in batches:
            output = {name: value.float().numpy() for name, value in model(**batch).items()}
            rows = len(batch["input_ids"])
            results.extend(
                {name: value[row] for name, value in output.items()} for row in range(rows)
            )
    return results


def main() -> None:
    """Trains, predicts the validation file, and prints what came out."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("--train", type=Path, required=True)
    parser.add_argument("--validation", type=Path, required=True)
    parser.add_argument("--model", required=True, help="a model directory of Hugging Face")
    parser.add_argument("--predictions", type=Path, required=True, help="is written, JSON")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=float, default=3.0)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--learning-rate", type=float, default=5e-5)
    parser.add_argument("--length", type=int, default=128, help="the most tokens of a row")
    parser.add_argument("--precision", default="auto", choices=["auto", "float32", "bfloat16"])
    parser.add_argument("--window-step", type=int, default=128, help="tokens (squad)")
    options = parser.parse_args()

    transformers.set_seed(options.seed)
    work = TASKS[options.task]
    rows, eval_rows = work.read(options.train), work.read(options.validation)
    tokenizer = transformers.AutoTokenizer.from_pretrained(options.model)
    task = work(tokenizer, options, rows)
    classes = {"num_labels": len(task.labels)} if task.labels else {}
    model = task.model_class.from_pretrained(options.model, dtype=torch.float32, **classes)
    collate = task.collator(tokenizer)
    features = task.features(rows, with_labels=True)

    training = time.perf_counter()
    train(model, loader(features, collate, options.batch_size, options.seed), options)
    trained = time.perf_counter()
    eval_features = task.features(eval_rows, with_labels=False)
    eval_batches = loader(eval_features, collate, options.batch_size, None)
    outputs = outputs_of(model, eval_batches, options)
    predictions = task.predictions(eval_rows, eval_features, outputs)
    options.predictions.write_text(json.dumps(predictions), encoding="utf-8")
    result = {
        "metrics": task.metrics(eval_rows, predictions),
        "rows": len(features),
        "training_seconds": trained - training,
        "seconds": time.perf_counter() - STARTED,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
