r"""Pre-training at length 512, from a model trained at 128: the paper's second phase (A.2).

    bert-jax train --config configs/pretrain_512.py:corpus=CORPUS,init_from=RUN/model \
        --workdir RUN512

The parameters come from the first phase; the optimizer starts anew, as google-research/bert does
with `--init_checkpoint`. The architecture must be that of the first phase: give the same `size`.

Rows are packed: several examples share one, without seeing each other, so that nearly all tokens
are real. A step thus sees a little more text than the paper's; with `--config.data.packing=false`
it is the paper's.

MEASURED
"""

from ml_collections import ConfigDict


def get_config(size: str = "base", corpus: str = "", init_from: str = "") -> ConfigDict:
    """The paper's last tenth: 100,000 steps of 256 sequences of 512."""
    return ConfigDict(
        {
            "task": "pretraining",
            "model": {"size": size},
            "init_from": init_from,
            # 15 % of 512 are 77; a packed row has some more, as each of its examples rounds.
            "data": {"corpus": corpus, "length": 512, "packing": True, "max_predictions": 80},
            "optimizer": {"learning_rate": 1e-4, "warmup_steps": 10_000},
            "train": {
                "steps": 100_000,
                "global_batch_size": 256,
                "log_every": 100,
                "eval_every": 5_000,
                "checkpoint_every": 5_000,
            },
        }
    )
