r"""Pre-training at length 512, from a model trained at 128: the paper's second phase (A.2).

    bert-jax train --config configs/pretrain_512.py:corpus=CORPUS,init_from=RUN \
        --workdir RUN512

The parameters come from the first phase; the optimizer starts again, as google-research/bert does
with `--init_checkpoint`. The architecture must be that of the first phase: give the same `size`.

Rows are packed: several examples share one, without seeing each other, so that nearly all tokens
are real, and a step sees more text than the paper's; `--config.data.packing=false` is the paper's.
Padding measured 2026-11-21 with `python -m benchmarks masking length=512 corpus=CORPUS
packing=false,true`, 4,096 rows each: 154 books 4.0 % and 0.4 %, 119 Wikipedia
articles 8.2 % and 0.7 %, 431 documents of Python's documentation 26.2 % and 0.8 %. Packing leaves
out 0.3 to 0.4 % of an epoch's examples.
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
            "optimizer": {"learning_rate": 1e-4, "warmup_ratio": 0.1},
            "train": {
                "steps": 100_000,
                "global_batch_size": 256,
                "log_every": 100,
                "eval_every": 5_000,
                "checkpoint_every": 5_000,
            },
        }
    )
