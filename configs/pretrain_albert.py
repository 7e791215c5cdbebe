"""Pre-training with ALBERT's objectives (Lan et al., 2020, https://arxiv.org/abs/1909.11942).

    bert-jax prepare --config configs/pretrain_albert.py:source=text:FILES --output CORPUS
    bert-jax train   --config configs/pretrain_albert.py:corpus=CORPUS --workdir RUN

Sentence order in place of next sentences, and masked n-grams of whole words. LAMB, rate, batch and
steps are those of the paper (section 4.1) and of google-research/albert.

Measured 2026-11-24 on one core of a shared 2-core CPU (AMD EPYC, AVX-512), float32: size tiny, a
SentencePiece model of 8,192 pieces trained on the same Wikipedia and books (84 s with the corpus),
8,000 steps of 32 × 64 tokens by AdamW in 17.5 minutes of processor time: validation MLM loss 5.893,
accuracy 0.142 (always the most frequent piece: 0.058). That is too little for sentence order:
accuracy 0.506, loss 0.693. Commands: benchmarks/results/pretraining.md.
"""

from ml_collections import ConfigDict


def get_config(
    size: str = "base", length: int = 512, source: str = "", corpus: str = "", tokenizer: str = ""
) -> ConfigDict:
    """The paper's 125,000 steps of 4,096 sequences, 3,125 of them warm-up."""
    return ConfigDict(
        {
            "task": "pretraining",
            "model": {"family": "albert", "size": size},
            "tokenizer": {"path": tokenizer, "kind": "sentencepiece", "vocab_size": 30_000},
            "data": {
                "source": source,
                "corpus": corpus,
                "length": length,
                "objective": "sop",
                "masking": "ngram",
                "max_predictions": 20,  # at any length
            },
            "optimizer": {
                "name": "lamb",
                "learning_rate": 1.76e-3,
                "warmup_ratio": 3_125 / 125_000,
                "weight_decay": 0.01,
            },
            "train": {
                "steps": 125_000,
                "global_batch_size": 4096,
                "log_every": 100,
                "eval_every": 5_000,
                "checkpoint_every": 5_000,
            },
        }
    )
