r"""Search by late interaction: each token of a query finds its most similar token (ColBERT).

    bert-jax train --config configs/late_interaction.py:train=queries.jsonl,init_from=MODEL \
        --workdir runs/colbert

Each line of the file has a query, its positives, and documents that are no answer, if there are
some: {"query": …, "positives": [text, …], "negatives": [text, …]}. The presets "colbert"
(Stanford's), "hofstaetter" and "pylate" have the markers, the added mask tokens, the width and the
similarity of these implementations; "pylate" needs the tokens [Q] and [D] in the vocabulary
(bert-jax convert --add-markers FILE). sentence-transformers does not read the models of
"hofstaetter", whose mask tokens are attended to behind each query.

Measured 2026-11-26 on 2 shared cores (Zen 5) with all-MiniLM-L6-v2, one seed, by `python -m
benchmarks retrieve`: of 2,193 questions of SQuAD with a mined negative each, in 69 steps at a rate
of 5e-5, nDCG@10 of the first 100 results of a dual encoder rises from 0.764 to 0.781.
"""

from ml_collections import ConfigDict


def get_config(
    train: str = "",
    validation: str = "",
    test: str = "",
    init_from: str = "",
    preset: str = "colbert",
    loss: str = "multiple_negatives",
    epochs: float = 1.0,
) -> ConfigDict:
    """One epoch in batches of 32, each query against all documents of its batch."""
    return ConfigDict(
        {
            "task": "late_interaction",
            "preset": preset,
            "init_from": init_from,
            "data": {
                "train": train,
                "validation": validation,
                "test": test,
                "loss": loss,
            },
            "optimizer": {"learning_rate": 2e-5},
            "train": {"epochs": epochs, "global_batch_size": 32},
        }
    )
