r"""GLUE: one of its nine tasks, as its files come.

    bert-jax train --config configs/glue.py:task=mrpc,directory=glue/MRPC,init_from=MODEL \
        --workdir runs/mrpc

Tasks: cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte, wnli. The directory holds train.tsv, dev.tsv
and test.tsv (MNLI: dev_matched.tsv, …); other names are given with `--config.data.train=…`. The
predictions for the test set are in `RUN/predictions/`, under the name that the benchmark expects.

Measured 2026-11-22 on 2 CPU cores with all-MiniLM-L6-v2 at a rate of 5e-5, three seeds of one to
five minutes, by `python -m benchmarks finetune`: MRPC F1 85.7 ± 0.2, CoLA Matthews 31.4 ± 1.2,
accuracy of SST-2 (10,000 rows) 87.2 ± 0.5, of QNLI (4,386 rows) 79.8 ± 0.3, of WNLI 44.6 ± 3.5.
"""

from ml_collections import ConfigDict


def get_config(
    task: str = "mrpc",
    directory: str = "",
    init_from: str = "",
    learning_rate: float = 3e-5,
    epochs: float = 3.0,
) -> ConfigDict:
    """The paper's recipe (section 4.1): 3 epochs, batches of 32; its rates are 5e-5 to 2e-5."""
    return ConfigDict(
        {
            "task": "classification",
            "init_from": init_from,
            "data": {"directory": directory, "format": f"glue:{task}", "length": 128},
            "optimizer": {"learning_rate": learning_rate},
            "train": {"epochs": epochs},
        }
    )
