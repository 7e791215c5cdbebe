r"""Question answering on SQuAD (paper, sections 4.2 and 4.3), or on questions of your own.

    bert-jax train --config configs/squad.py:version=1.1,init_from=MODEL --workdir runs/squad \
        --config.data.train=train-v1.1.json --config.data.development=dev-v1.1.json

Version 2.0 has questions without an answer. When a passage has none is decided by a threshold that
is tuned on the development file and stored in the model's config.json.
"""

from ml_collections import ConfigDict

# Batch sizes and epochs of the paper.
BATCH_SIZE = {"1.1": 32, "2.0": 48}
EPOCHS = {"1.1": 3.0, "2.0": 2.0}


def get_config(
    version: str = "1.1",
    train: str = "train-v1.1.json",
    development: str = "dev-v1.1.json",
    test: str = "",
    init_from: str = "",
) -> ConfigDict:
    """The paper's hyper-parameters."""
    return ConfigDict(
        {
            "task": "question_answering",
            "init_from": init_from,
            "data": {
                "train": train,
                "development": development,
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
