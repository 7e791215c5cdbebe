r"""Your own labels: classify texts or pairs of texts, or predict a number for them.

    bert-jax train --config configs/classification.py:train=reviews.tsv,init_from=MODEL \
        --workdir runs/reviews

MODEL is a model directory or a hub id (google-bert/bert-base-uncased). The file is a table (TSV,
CSV) whose first line names its columns, or JSON lines; columns called text and label (and other
usual names) are found, others are named with `--config.data.text_column=…` (and pair_column,
label_column, id_column). Labels are read from the data. Without a validation file, a tenth of the
examples is validation.

    labels of several at once    lists, vectors; or a column each, --config.data.label_columns=…
    a number                     --config.data.problem_type=regression
    several seeds                --config.train.seeds=1,2,3
    the paper's grid             bert-jax train --sweep …

Measured 2026-11-22 on 2 CPU cores with all-MiniLM-L6-v2 at a rate of 5e-5, three seeds of two to
four minutes, by `python -m benchmarks finetune`: TREC, test accuracy 96.6 ± 0.2 %; SICK's
entailment, trial accuracy 84.9 ± 0.5 %, and relatedness, a number, Pearson 84.0 ± 0.5.
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
    """The paper's recipe (appendix A.3): 3 epochs, batches of 32, 3e-5."""
    return ConfigDict(
        {
            "task": "classification",
            "init_from": init_from,
            "data": {
                "train": train,
                "validation": validation,
                "test": test,
                "length": length,
            },
            "train": {"epochs": epochs},
        }
    )
