"""Pre-training: MLM + NSP."""

from ml_collections import ConfigDict


def get_config(size: str = "small", length: int = 128, source: str = "", corpus: str = ""):
    return ConfigDict(
        {
            "task": "pretraining",
            "model": {"size": size},
            "data": {"source": source, "corpus": corpus, "length": length},
        }
    )
