r"""Search by weighted words: sparse vectors of queries and documents (SPLADE).

    bert-jax train --config configs/sparse.py:train=queries.jsonl,init_from=MODEL \
        --workdir runs/sparse

MODEL is a masked language model, or a SparseEncoder of sentence-transformers, as is the model that
comes out; without a trained head, most words of the vocabulary have a weight in each text. The file
is that of `configs/retrieval.py`.

`document_flops` and `query_flops` make the vectors sparse: higher ones leave fewer words. The log
has the mean number of words of a document and of a query (`document_words`, `query_words`).

Measured 2026-11-26 on 2 shared cores (Zen 5), one seed, by `python -m benchmarks retrieve`: of
2,193 questions of SQuAD in 35 steps, from all-MiniLM-L6-v2 with a head of words of 700 steps,
nDCG@10 is 0.120, where BM25 has 0.807: a published masked language model is needed.
"""

from ml_collections import ConfigDict


def get_config(
    train: str = "",
    validation: str = "",
    test: str = "",
    init_from: str = "",
    loss: str = "multiple_negatives",
    epochs: float = 1.0,
    length: int = 0,
    query_length: int = 0,
    query_flops: float = 5e-5,
    document_flops: float = 3e-5,
) -> ConfigDict:
    """One epoch in batches of 64; the factors of sentence-transformers' example of SPLADE."""
    return ConfigDict(
        {
            "task": "sparse_retrieval",
            "init_from": init_from,
            "data": {
                "train": train,
                "validation": validation,
                "test": test,
                "loss": loss,
                "length": length,
                "query_length": query_length or None,
                "query_flops": query_flops,
                "document_flops": document_flops,
            },
            "optimizer": {"learning_rate": 2e-5},
            "train": {"epochs": epochs, "global_batch_size": 64},
        }
    )
