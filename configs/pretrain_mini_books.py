"""A measured pre-training run on one CPU: size mini, Wikipedia sample and classic books."""

from ml_collections import ConfigDict


def get_config(corpus: str = "corpora/wikipedia-books", steps: int = 3000) -> ConfigDict:
    """MLM + NSP at length 128, 32 sequences a step."""
    return ConfigDict(
        {
            "task": "pretraining",
            "model": {"size": "mini"},
            "data": {"corpus": corpus, "length": 128, "evaluation_batches": 40},
            "optimizer": {
                "learning_rate": 1e-3,
                "warmup_steps": 300,
                "decay_from": "warmup",
                "beta2": 0.98,
                "bias_correction": True,
            },
            "train": {
                "steps": steps,
                "global_batch_size": 32,
                "log_every": 25,
                "eval_every": 250,
                "checkpoint_every": 250,
            },
        }
    )
