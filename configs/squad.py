r"""Question answering on SQuAD (paper, sections 4.2 and 4.3), or on questions of your own.

    bert-jax train --config configs/squad.py:version=1.1,directory=squad,init_from=MODEL \
        --workdir runs/squad

The directory holds train-v1.1.json and dev-v1.1.json, or those of 2.0; other names are given with
`train=…,validation=…,test=…`. Windows have 384 tokens, or `length=…`; `data.window_step` is what
google-research/bert calls `doc_stride`, Hugging Face's is an overlap. Version 2.0 has questions
without an answer: the difference of scores from which a passage has none is tuned on the validation
file and stored in the model's config.json.
`RUN/predictions/` has the files of the official scripts.

`qa_head=joint` scores the end of an answer given its start, as ELECTRA does, and with version 2.0
learns whether there is an answer; see docs/finetuning.md.

Measured 2026-11-22 on 2 CPU cores with all-MiniLM-L6-v2, one seed, by
`python -m benchmarks finetune set=squad1,squad2`: 1.1, of 8,000 questions in 28 minutes, F1
64.7, exact match 51.2 on the public half of the validation set; 2.0, on public articles, F1
47.4, exact match 44.2.

Measured 2026-11-23 on 2 shared cores of a Xeon at 2.8 GHz, float32, one seed, of 1,500 questions of
SQuAD 1.1, each about the one sentence of its passage that has the answer; 190 steps; evaluated on
582 such questions of XQuAD:
`configs/squad.py:train=train.jsonl,validation=dev.jsonl,length=128,init_from=MODEL,qa_head=HEAD`
with `data.limit=1500`, `train.epochs=2`, `train.global_batch_size=16`,
`optimizer.learning_rate=1e-4`, MODEL all-MiniLM-L6-v2:

    independent   F1 47.7, exact match 32.0, 6.2 minutes of processor time with the evaluation
    joint         F1 57.0, exact match 39.9, 6.9 minutes
"""

from ml_collections import ConfigDict

# Batch sizes and epochs of the paper.
BATCH_SIZE = {"1.1": 32, "2.0": 48}
EPOCHS = {"1.1": 3.0, "2.0": 2.0}


def get_config(
    version: str = "1.1",
    directory: str = "",
    train: str = "",
    validation: str = "",
    test: str = "",
    init_from: str = "",
    length: int = 0,
    qa_head: str = "",
) -> ConfigDict:
    """The paper's recipe: its rate, batches and epochs."""
    return ConfigDict(
        {
            "task": "question_answering",
            "init_from": init_from,
            # None: that of `init_from`.
            "model": {"qa_head": qa_head or None},
            "data": {
                "directory": directory,
                # Of questions of your own without a validation file, a tenth is validation.
                "train": train or f"train-v{version}.json",
                "validation": validation or ("" if train else f"dev-v{version}.json"),
                "test": test,
                "version": version,
                "length": length,
                "window_step": 128,
            },
            "optimizer": {"learning_rate": 5e-5},
            "train": {
                "epochs": EPOCHS.get(version, 3.0),
                "global_batch_size": BATCH_SIZE.get(version, 32),
            },
        }
    )
