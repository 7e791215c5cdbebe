"""A recurrent language model of your own text, as a start for classifiers (Dai and Le, 2015).

    bert-jax prepare --config configs/lstm.py:source=text:FILES --output CORPUS
    bert-jax train   --config configs/lstm.py:corpus=CORPUS --workdir RUN
    bert-jax train   --config configs/classification.py:train=LABELLED,init_from=RUN --workdir RUN2

`family=gru`, or `family=gpt2` for a Transformer on the same windows. Measured 2026-11-29 on two
cores of an AMD EPYC beside many other programs: 1,000 steps on 0.3 M tokens of reviews with
`vocab_size=4096` take 17 minutes, 3 of them a processor's; results are in docs/before_bert.md.
"""

from ml_collections import ConfigDict


def get_config(
    family: str = "lstm",
    size: str = "tiny",
    source: str = "",
    corpus: str = "",
    tokenizer: str = "",
    vocab_size: int = 8_192,
    length: int = 64,
    steps: int = 2_000,
) -> ConfigDict:
    """2,000 steps of 32 windows."""
    return ConfigDict(
        {
            "task": "causal_lm",
            "model": {"family": family, "size": size},
            "tokenizer": {
                "path": tokenizer,
                "kind": "gpt2",
                "vocab_size": vocab_size,
                "lowercase": False,
            },
            "data": {"source": source, "corpus": corpus, "length": length},
            "optimizer": {
                "learning_rate": 2e-3,
                "warmup_ratio": 0.05,
                "weight_decay": 0.0,
                "max_grad_norm": 1.0,
                "bias_correction": True,
            },
            "train": {
                "steps": steps,
                "global_batch_size": 32,
                "log_every": 100,
                "eval_every": 500,
                "checkpoint_every": 1_000,
            },
        }
    )
