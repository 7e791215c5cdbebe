"""Pre-training as RoBERTa does it (Liu et al., 2019, https://arxiv.org/abs/1907.11692).

    bert-jax prepare --config configs/pretrain_roberta.py:source=text:FILES --output CORPUS
    bert-jax train   --config configs/pretrain_roberta.py:corpus=CORPUS --workdir RUN

MLM alone, on rows of whole sentences that continue in the next document; masks are drawn again in
each epoch. Optimizer as in the paper (table 9) and fairseq's examples/roberta. Fewer rows than
8,192 a step need a lower rate; fairseq's README gives 1e-4 for 256 and 5e-4 for 2,048.

Measured 2026-11-24 on one core of a shared 2-core CPU (AMD EPYC, AVX-512), float32: size tiny, a
BPE of 8,192 tokens trained on the same Wikipedia and books (49 s with the corpus), 8,000 steps of
32 × 64 tokens in 17.8 minutes of processor time: validation MLM loss 5.430, accuracy 0.209 (always
the most frequent token: 0.064). Commands: benchmarks/results/pretraining.md.
"""

from ml_collections import ConfigDict

# Peak learning rate and steps of warm-up.
RATES = {"base": (6e-4, 24_000), "large": (4e-4, 30_000)}


def get_config(
    size: str = "base", length: int = 512, source: str = "", corpus: str = "", tokenizer: str = ""
) -> ConfigDict:
    """The paper's 500,000 steps of 8,192 sequences."""
    rate, warmup = RATES.get(size, RATES["base"])
    return ConfigDict(
        {
            "task": "pretraining",
            "model": {"family": "roberta", "size": size},
            "tokenizer": {
                "path": tokenizer,
                "kind": "byte_level_bpe",
                "vocab_size": 50_265,
                "lowercase": False,
            },
            "data": {
                "source": source,
                "corpus": corpus,
                "length": length,
                "objective": "none",
                "cross_documents": True,
                "short_probability": 0.0,
                "mask_rounding": "random",
                "random_tokens": "non_special",
                "max_predictions": -(-length * 15 // 100),
            },
            "optimizer": {
                "learning_rate": rate,
                "warmup_ratio": warmup / 500_000,
                "decay_from": "warmup",
                "beta2": 0.98,
                "epsilon": 1e-6,
                "weight_decay": 0.01,
                "bias_correction": True,
                "max_grad_norm": 0.0,
            },
            "train": {
                "steps": 500_000,
                "global_batch_size": 8192,
                "log_every": 100,
                "eval_every": 5_000,
                "checkpoint_every": 5_000,
            },
        }
    )
