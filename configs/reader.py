r"""Answers from several passages: the reader of DPR, which also chooses the passage.

    bert-jax answer --index INDEX --questions questions.jsonl --top-k 50 --output passages.jsonl
    bert-jax train --config configs/reader.py:train=passages.jsonl,init_from=MODEL \
        --workdir runs/reader

The first command makes the file: each line of questions.jsonl has a "question" and its "answers",
and gets the passages that a search of the index finds. JSON of DPR is read, too. MODEL is a BERT,
or a reader to train further; the result is a DPRReader for transformers.

Measured 2026-11-26 on 2 shared cores (Zen 5), one seed: INDEX and MODEL are `mined_index` and
`reader` of `python -m benchmarks open_qa`, with the same 2,500 questions of SQuAD.

    bert-jax answer --index INDEX --questions train.json --top-k 20 --output passages.jsonl
    bert-jax train --config \
        configs/reader.py:train=passages.jsonl,init_from=MODEL,passages=4,length=192,epochs=1 \
        --workdir runs/reader --config.optimizer.learning_rate=1e-4 \
        --config.train.evaluate_per_epoch=1
    bert-jax answer --index INDEX --questions others.json --reader runs/reader \
        --max-length 256 --top-k 10 --output answers.jsonl

135 steps in six minutes. Of 500 other questions F1 rises from 28.3, by MODEL, to 40.3, and exact
match from 21.2 to 30.8; with `--searcher faiss+bm25` from 28.6 to 38.9, and from 21.0 to 29.0.
"""

from ml_collections import ConfigDict


def get_config(
    train: str = "",
    validation: str = "",
    test: str = "",
    init_from: str = "",
    passages: int = 24,
    length: int = 0,
    epochs: float = 3.0,
) -> ConfigDict:
    """DPR's rate, batches and passages of a question; windows of 350 tokens."""
    return ConfigDict(
        {
            "task": "reader",
            "init_from": init_from,
            "model": {"family": "dpr"},
            "data": {
                "train": train,
                "validation": validation,
                "test": test,
                "passages": passages,
                "length": length,
            },
            "optimizer": {"learning_rate": 1e-5, "warmup_ratio": 0.0},
            "train": {"epochs": epochs, "global_batch_size": 16},
        }
    )
