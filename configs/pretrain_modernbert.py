"""Pre-training as ModernBERT does it (Warner et al., 2024, https://arxiv.org/abs/2412.13663).

    CONFIG=configs/pretrain_modernbert.py
    bert-jax prepare --config $CONFIG:source=text:FILES --output CORPUS
    bert-jax train --config $CONFIG:corpus=CORPUS --workdir RUN
    bert-jax train --config $CONFIG:corpus=CORPUS,phase=extension,init_from=RUN --workdir RUN8192
    bert-jax train --config $CONFIG:corpus=CORPUS,phase=decay,init_from=RUN8192 --workdir DECAYED

MLM alone on packed rows, 30 % of the tokens masked, evaluated at 15 %. The first phase has rows of
1,024 tokens, a rotary base of 10,000 in all layers, a constant rate after the warm-up, and batches
that grow; the second has rows of 8,192 and the base 160,000 in the layers with global attention;
in the third the rate falls. Source: the authors' yamls/modernbert for the first phase, the paper
for the numbers of tokens and the rate, 3e-4, of the other two. Their batches have as many tokens as
those of the first phase here.

Not as there: their batches grow by a few rows at a time, here they double; they have a dropout of
0.1 behind attention; the moments of the optimizer start again in each phase here. For another batch
size give `batch`, for a shorter run `--config.train.steps`: warm-ups are shares of the steps.
"""

from ml_collections import ConfigDict

# Peak learning rates of the sizes: the paper's for base and large, Ettin's for the smaller ones.
RATES = {"tiny": 3e-3, "mini": 3e-3, "small": 3e-3, "base": 8e-4, "large": 5e-4}
# Tokens, tokens of a row, rows of a batch.
PHASES = {
    "": (1_719e9, 1024, 4608),
    "extension": (250e9, 8192, 576),
    "decay": (50e9, 8192, 576),
}
# Tokens in which the rate rises, and in which the batch grows.
RATE_WARMUP, BATCH_WARMUP = 3e9, 50e9


def get_config(
    size: str = "base",
    phase: str = "",
    length: int = 0,
    batch: int = 0,
    source: str = "",
    corpus: str = "",
    tokenizer: str = "",
    init_from: str = "",
) -> ConfigDict:
    """A phase: "", "extension" or "decay"; `length` and `batch` replace its own ones."""
    if phase and not init_from:
        raise ValueError(f"phase={phase} continues a run; give init_from=RUN of the phase before")
    tokens, its_length, its_batch = PHASES[phase]
    length, batch = length or its_length, batch or its_batch
    rate = RATES[size] if phase == "" else 3e-4
    growing = tuple(batch // parts for parts in (8, 4, 2)) if phase == "" and batch % 8 == 0 else ()
    steps = round(tokens / (its_length * its_batch))
    return ConfigDict(
        {
            "task": "pretraining",
            "preset": "modernbert",
            "init_from": init_from,
            "model": {
                "family": "modernbert",
                "size": size,
                "global_rope_theta": 160_000.0 if phase else 10_000.0,
                "local_rope_theta": 10_000.0,
            },
            "tokenizer": {
                "path": tokenizer,
                "kind": "byte_level_bpe",
                "vocab_size": 50_368,
                "lowercase": False,
            },
            "data": {
                "source": source,
                "corpus": corpus,
                "length": length,
                # A packed row has some more than 30 %, as each of its examples rounds.
                "max_predictions": -(-length * 32 // 100),
            },
            "optimizer": {
                "learning_rate": rate,
                # 1e-5 of a weight a step at the peak.
                "weight_decay": 1e-5 / rate,
                "warmup_ratio": RATE_WARMUP / tokens if phase == "" else 0.0,
                **({"decay": "one_minus_sqrt"} if phase == "decay" else {}),
            },
            "train": {
                "steps": steps,
                "global_batch_size": batch,
                "batch_warmup": growing,
                "batch_warmup_ratio": BATCH_WARMUP / tokens if growing else 0.0,
                "log_every": 100,
                "eval_every": 4_000,
                "checkpoint_every": 4_000,
            },
        }
    )
