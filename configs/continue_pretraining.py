"""Continued pre-training of a finished model on one's own text, as BioBERT and SciBERT did it.

    CONFIG=configs/continue_pretraining.py
    bert-jax convert --input MODEL --output START --add-words WORDS.txt      # optional
    bert-jax prepare --config $CONFIG:model=START,source=text:FILES --output NEW
    bert-jax prepare --config $CONFIG:model=START,source=text:OTHERS --output GENERAL
    bert-jax train --config $CONFIG:model=START,corpus=NEW,general=GENERAL --workdir RUN

Before, during and after the training the masked loss is computed on held-out documents of both
corpora: `mlm_loss` is what the model learns, `general_mlm_loss` what it forgets; `curves.png` shows
both. MLM alone, on whole sentences; rates of 1e-5 to 5e-5 forget little (BioBERT: Lee et al., 2019,
https://arxiv.org/abs/1901.08746, trained with BERT's own rate).

Measured 2026-11-24 on one core of a shared 2-core CPU (AMD EPYC, AVX-512), bfloat16, with
all-MiniLM-L6-v2, whose new MLM head was trained first: 700 steps on Wikipedia at 3e-4,
`length=64,steps=700`, 16 minutes of processor time. Then `length=64,steps=400` on Shakespeare's
plays (1.1 MB), 10 minutes; the held-out MLM loss at the start and the end:

    Shakespeare   5.908   4.568   (accuracy 0.185, 0.281)
    Wikipedia     4.550   4.877   (accuracy 0.317, 0.296)

Commands: benchmarks/results/pretraining.md.
"""

from ml_collections import ConfigDict


def get_config(
    model: str = "",
    source: str = "",
    corpus: str = "",
    general: str = "",
    length: int = 128,
    steps: int = 10_000,
) -> ConfigDict:
    """A model directory or hub id, its text, and the number of steps."""
    return ConfigDict(
        {
            "task": "pretraining",
            "init_from": model,
            "tokenizer": {"path": model},
            "data": {
                "source": source,
                "corpus": corpus,
                "general_corpus": general,
                "length": length,
                "objective": "none",
                "short_probability": 0.0,
                "max_predictions": -(-length * 15 // 100),
            },
            "optimizer": {
                "learning_rate": 5e-5,
                "warmup_ratio": 0.1,
                "decay_from": "warmup",
                "bias_correction": True,
            },
            "train": {
                "steps": steps,
                "global_batch_size": 32,
                "log_every": 50,
                "eval_every": max(1, steps // 10),
                "evaluate_first": True,
                "checkpoint_every": max(1, steps // 10),
            },
        }
    )
