"""Pre-training with MLM + NSP at length 128: the paper's first phase (appendix A.2).

    bert-jax prepare --config configs/pretrain.py:source=text:FILES --output CORPUS
    bert-jax train   --config configs/pretrain.py:corpus=CORPUS,size=base --workdir RUN

The second phase, at length 512, is `configs/pretrain_512.py`.
"""

from ml_collections import ConfigDict


def get_config(
    size: str = "base", length: int = 128, source: str = "", corpus: str = "", tokenizer: str = ""
) -> ConfigDict:
    """The paper's first nine tenths: 900,000 steps of 256 sequences, 10,000 of them warm-up."""
    return ConfigDict(
        {
            "task": "pretraining",
            "model": {"size": size},
            "tokenizer": {"path": tokenizer},
            "data": {
                "source": source,
                "corpus": corpus,
                "length": length,
                # 15 % of the tokens, rounded up to whole ones: 20 at length 128, 77 at 512.
                "max_predictions": -(-length * 15 // 100),
            },
            "optimizer": {"learning_rate": 1e-4, "warmup_ratio": 1 / 90},
            "train": {
                "steps": 900_000,
                "global_batch_size": 256,
                "log_every": 100,
                "eval_every": 10_000,
                "checkpoint_every": 10_000,
            },
        }
    )
