r"""Question answering on SQuAD (paper, sections 4.2 and 4.3), or on questions of your own.

    bert-jax train --config configs/squad.py:version=1.1,directory=squad,init_from=MODEL \
        --workdir runs/squad

The directory holds train-v1.1.json and dev-v1.1.json, or those of 2.0; other names are given with
`train=…,validation=…,test=…`. `data.window_step` is what google-research/bert calls `doc_stride`;
Hugging Face's is an overlap. Version 2.0 has questions without an answer: the difference of scores
from which a passage has none is tuned on the validation file and stored in the model's config.json.
`RUN/predictions/` has the files of the official scripts.

Measured 2026-11-22 on 2 CPU cores with all-MiniLM-L6-v2, one seed, by
`launch/measure/finetuning_table.py --rows squad1 squad2`: 1.1, of 8,000 questions in 28 minutes, F1
64.7, exact match 51.2 on the public half of the validation set; 2.0, on public articles, F1
47.4, exact match 44.2.
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
) -> ConfigDict:
    """The paper's recipe: its rate, batches and epochs."""
    return ConfigDict(
        {
            "task": "question_answering",
            "init_from": init_from,
            "data": {
                "directory": directory,
                # Of questions of your own without a validation file, a tenth is validation.
                "train": train or f"train-v{version}.json",
                "validation": validation or ("" if train else f"dev-v{version}.json"),
                "test": test,
                "version": version,
                "length": 384,
                "window_step": 128,
            },
            "optimizer": {"learning_rate": 5e-5},
            "train": {
                "epochs": EPOCHS.get(version, 3.0),
                "global_batch_size": BATCH_SIZE.get(version, 32),
            },
        }
    )
