r"""Multiple choice: SWAG (paper, section 4.4), ARC, OpenBookQA, Cosmos QA, or a file of your own.

    bert-jax train --config configs/multiple_choice.py:train=train.jsonl,init_from=MODEL \
        --workdir runs/choices

The layout is found by the columns or keys: SWAG's and Cosmos QA's CSV, ARC's JSON lines, or lines
of your own, {"prompt": …, "choices": [text, …], "label": 0}. Items may have any number of choices.
Without a validation file, a tenth of the items is validation.

Measured 2026-11-22 on 2 CPU cores with all-MiniLM-L6-v2: OpenBookQA (4,461 questions without the
book) at a rate of 5e-5, three seeds of 5 minutes: 58.4 ± 1.1 % of 496 validation questions (25 % by
chance), by `python -m benchmarks finetune set=openbookqa`.
"""

from ml_collections import ConfigDict


def get_config(
    train: str = "",
    validation: str = "",
    test: str = "",
    init_from: str = "",
    epochs: float = 3.0,
    length: int = 0,
) -> ConfigDict:
    """The paper's recipe for SWAG: 3 epochs, batches of 16, 2e-5."""
    return ConfigDict(
        {
            "task": "multiple_choice",
            "init_from": init_from,
            "data": {
                "train": train,
                "validation": validation,
                "test": test,
                "length": length,
            },
            "optimizer": {"learning_rate": 2e-5},
            "train": {"epochs": epochs, "global_batch_size": 16},
        }
    )
