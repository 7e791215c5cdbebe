"""Pre-training as SpanBERT does it (Joshi et al., 2020, https://arxiv.org/abs/1907.10529).

    bert-jax prepare --config configs/pretrain_spanbert.py:source=text:FILES --output CORPUS
    bert-jax train   --config configs/pretrain_spanbert.py:corpus=CORPUS --workdir RUN

Masked spans of whole words in rows of one document, predicted by MLM and from the tokens next to
the span. Options as in facebookresearch/SpanBERT, pretraining/README.md. The exported model is a
BERT with the head of MLM: the head of the span boundaries stays in the run, as no published model
has it.
"""

from ml_collections import ConfigDict


def get_config(
    size: str = "base", length: int = 512, source: str = "", corpus: str = "", tokenizer: str = ""
) -> ConfigDict:
    """The paper's 2.4 million steps of 256 sequences, 10,000 of them warm-up."""
    return ConfigDict(
        {
            "task": "pretraining",
            "model": {"size": size},
            "tokenizer": {"path": tokenizer, "vocab_size": 28_996, "lowercase": False},
            "data": {
                "source": source,
                "corpus": corpus,
                "length": length,
                "objective": "none",
                "short_probability": 0.0,
                "masking": "span",
                "mask_rounding": "up",
                "random_tokens": "corpus",
                "span_boundary": True,
                "max_span_targets": 15,
                "max_predictions": -(-length * 15 // 100),
            },
            "optimizer": {
                "learning_rate": 1e-4,
                "warmup_ratio": 10_000 / 2_400_000,
                "decay_from": "warmup",
                "epsilon": 1e-8,
                "weight_decay": 0.01,
                "bias_correction": True,
            },
            "train": {
                "steps": 2_400_000,
                "global_batch_size": 256,
                "log_every": 100,
                "eval_every": 10_000,
                "checkpoint_every": 10_000,
            },
        }
    )
