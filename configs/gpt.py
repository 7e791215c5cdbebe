"""Pre-training of GPT: a causal language model of a corpus.

    bert-jax prepare --config configs/gpt.py:source=text:FILES --output CORPUS
    bert-jax train   --config configs/gpt.py:corpus=CORPUS --workdir RUN
    bert-jax bench --config configs/gpt.py:size=tiny --config.train.global_batch_size=2 --work train

Family gpt2: half a million tokens a step, optimizer and steps as in nanoGPT's reproduction of the
smallest GPT-2, except that the cosine ends at 0 (there: a tenth of the peak). The tokenizer is
trained, or `tokenizer=DIRECTORY` gives that of a published model. Family openai-gpt: GPT-1 as in
Radford et al. (2018, section 4.1), 100 epochs of 64 × 512 tokens, whose tokenizer must be given.
Neither was trained to the end here. `bench`, on two cores of an AMD EPYC (Zen 3) beside other
programs: 360 tokens/s, median of 5 steps of 4.2 to 6.5 s.
"""

from ml_collections import ConfigDict

LENGTH = {"gpt2": 1024, "openai-gpt": 512}
OPTIMIZER = {
    "gpt2": {"learning_rate": 6e-4, "warmup_ratio": 1 / 300, "beta2": 0.95, "weight_decay": 0.1},
    "openai-gpt": {
        "learning_rate": 2.5e-4,
        "warmup_ratio": 0.002,
        "beta2": 0.999,
        "weight_decay": 0.01,
    },
}
TRAIN = {
    "gpt2": {"steps": 600_000, "epochs": 0.0, "global_batch_size": 512},
    "openai-gpt": {"steps": 0, "epochs": 100.0, "global_batch_size": 64},
}


def get_config(
    family: str = "gpt2",
    size: str = "base",
    source: str = "",
    corpus: str = "",
    tokenizer: str = "",
) -> ConfigDict:
    """600,000 steps of gpt2, or 100 epochs of openai-gpt."""
    if family == "openai-gpt" and source and not tokenizer:
        raise ValueError("openai-gpt needs tokenizer=DIRECTORY: its tokenizer is not trained here")
    return ConfigDict(
        {
            "task": "causal_lm",
            "model": {"family": family, "size": size},
            "tokenizer": {
                "path": tokenizer,
                "kind": "gpt2",
                "vocab_size": 50_257,
                "lowercase": False,
            },
            "data": {"source": source, "corpus": corpus, "length": LENGTH[family]},
            "optimizer": {
                "decay": "cosine",
                "decay_from": "warmup",
                "epsilon": 1e-8,
                "bias_correction": True,
                "max_grad_norm": 1.0,
                **OPTIMIZER[family],
            },
            "train": {
                "log_every": 100,
                "eval_every": 2_000,
                "checkpoint_every": 2_000,
                **TRAIN[family],
            },
        }
    )
