r"""Re-ranking: a cross-encoder, which reads a query and a document together, and gives a score.

    bert-jax train --config configs/ranking.py:train=train.tsv,init_from=MODEL \
        --workdir runs/ranking

The file has queries with relevant and other documents: JSON lines with query, positives and
negatives; tables of query, document and label, as of WikiQA; DPR's and Tevatron's JSON; a BEIR
folder; a teacher's scores. The loss is

    binary_cross_entropy  whether a document is relevant, each document alone
    cross_entropy         which one of a positive and negatives is relevant
    margin_mse            a teacher's margin between a positive and each negative
    list_net, list_mle, p_list_mle, rank_net, lambda_loss
                          the order of the grades of a query's documents

The model that comes out is for `bert_jax.load(…).rank`, `bert-jax rerank`, and the CrossEncoder of
sentence-transformers.

Measured 2026-11-26 on 2 shared cores (Zen 5) with all-MiniLM-L6-v2, one seed, by `python -m
benchmarks retrieve`: of 2,245 questions of SQuAD with three negatives drawn from the first 200
each, by cross-entropy in 141 steps of 16 questions at a rate of 2e-4, eleven minutes beside other
programs, nDCG@10 of the first 100 results of a dual encoder rises from 0.764 to 0.817. By binary
cross-entropy at 5e-5, with one mined negative each, it learned nothing (0.129).
"""

from ml_collections import ConfigDict


def get_config(
    train: str = "",
    validation: str = "",
    test: str = "",
    init_from: str = "",
    loss: str = "binary_cross_entropy",
    epochs: float = 1.0,
    length: int = 256,
) -> ConfigDict:
    """The recipe of sentence-transformers: an epoch, batches of 32 pairs, 2e-5."""
    return ConfigDict(
        {
            "task": "ranking",
            "init_from": init_from,
            "data": {
                "train": train,
                "validation": validation,
                "test": test,
                "loss": loss,
                "length": length,
            },
            "optimizer": {"learning_rate": 2e-5},
            "train": {"epochs": epochs, "global_batch_size": 32},
        }
    )
