"""Pre-training of T5 by span corruption (Raffel et al., 2020, https://arxiv.org/abs/1910.10683).

    bert-jax prepare --config configs/t5.py:source=text:FILES --output CORPUS
    bert-jax train   --config configs/t5.py:corpus=CORPUS --workdir RUN
    bert-jax bench --config configs/t5.py:size=tiny --config.train.global_batch_size=8 --work train

Spans, optimizer and schedule as in the paper (section 3.1): 15 % of the tokens in spans of 3;
Adafactor at 1 / sqrt(max(step, 10,000)), without decay; 2^19 steps of 128 × 512 tokens. (The larger
published models had 2,048 rows and 2^20 steps.) The tokenizer is trained, or `tokenizer=DIRECTORY`
gives that of a published model. It was not trained to the end here. `bench`, on two cores of an AMD
EPYC (Zen 3) beside other programs: 2,000 tokens/s, median of 10 steps of 2.0 to 3.2 s.
"""

from ml_collections import ConfigDict

STEPS = 2**19


def get_config(
    size: str = "base", length: int = 512, source: str = "", corpus: str = "", tokenizer: str = ""
) -> ConfigDict:
    """The paper's 524,288 steps."""
    return ConfigDict(
        {
            "task": "span_corruption",
            "model": {"family": "t5", "size": size},
            "tokenizer": {
                "path": tokenizer,
                "kind": "t5",
                "vocab_size": 32_100,
                "lowercase": False,
            },
            "data": {"source": source, "corpus": corpus, "length": length},
            "optimizer": {
                "name": "adafactor",
                "learning_rate": 0.01,
                "warmup_ratio": 10_000 / STEPS,
                "decay": "constant_inverse_sqrt",
                "weight_decay": 0.0,
                "max_grad_norm": 0.0,
            },
            "train": {
                "steps": STEPS,
                "global_batch_size": 128,
                "log_every": 100,
                "eval_every": 5_000,
                "checkpoint_every": 5_000,
            },
        }
    )
