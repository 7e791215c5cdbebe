r"""Sentence similarity: an encoder whose pooled vectors can be compared (Sentence-BERT).

    bert-jax train --config configs/similarity.py:train=pairs.tsv,init_from=MODEL \
        --workdir runs/similarity --config.data.label_range=0,5

The file is a table with two texts and a label in each row; columns with usual names are found, and
others are named with `--config.data.text_column=…` (and pair_column, label_column). The label is

    cosine              how similar they are, a number in label_range
    contrastive         1 for similar texts, 0 for others
    softmax             a class, as entailment, neutral, contradiction
    in_batch_negatives  not needed: every pair belongs together, and not to the others of its batch;
                        a row may have a single text, of which dropout makes two vectors (SimCSE)
    cosent              a number; only the order of the numbers counts

The model that comes out is a bare encoder, for `bert_jax.load(…).similarity` and `.embed`, and for
sentence-transformers.

Measured 2026-11-22 on 2 CPU cores with all-MiniLM-L6-v2: SICK's relatedness (4,500 pairs,
label_range=1,5) by `cosine`, three seeds of a minute and a half: on the trial set Spearman 84.2 ±
0.2 and Pearson 88.7 ± 0.1, by `python -m benchmarks finetune set=sick_embeddings`.
"""

from ml_collections import ConfigDict


def get_config(
    train: str = "",
    validation: str = "",
    test: str = "",
    init_from: str = "",
    loss: str = "cosine",
    epochs: float = 1.0,
    length: int = 0,
) -> ConfigDict:
    """The recipe of Sentence-BERT (section 3.1): one epoch, batches of 16, 2e-5."""
    return ConfigDict(
        {
            "task": "similarity",
            "init_from": init_from,
            "data": {
                "train": train,
                "validation": validation,
                "test": test,
                "loss": loss,
                "length": length,
            },
            "optimizer": {"learning_rate": 2e-5},
            "train": {"epochs": epochs, "global_batch_size": 16},
        }
    )
