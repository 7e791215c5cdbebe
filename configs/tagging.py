r"""Your own tags: names in texts, or any other label of words.

    bert-jax train --config configs/tagging.py:train=train.txt,validation=dev.txt,init_from=MODEL \
        --workdir runs/names

MODEL is a model directory or a hub id (google-bert/bert-base-cased). The files have a word and its
tag on each line, and a blank line after each sentence (CoNLL-2003's form), are JSON lines with
"words" and "tags", or CSV (docs/finetuning.md). Tags may be IOB1, IOB2 or BIOES; any others, such
as parts of speech, are learned as they are. Without a validation file, a tenth of the sentences is
validation.

    words and tags elsewhere     --config.data.word_column=1 --config.data.tag_column=2 (from 0)
    tags that are numbers        --config.data.labels=O,B-PER,I-PER
    a linear-chain CRF           --config.model.use_crf=true
    learn BIOES                  --config.data.scheme=bioes
    several seeds                --config.train.seeds=1,2,3

Measured 2026-11-22 on 2 CPU cores with all-MiniLM-L6-v2, three seeds of three to five minutes, by
`python -m benchmarks finetune set=conll2003,wnut17`: entity F1 on the validation sets
89.7 ± 0.2 for CoNLL-2003, 51.9 ± 2.2 (in 5 epochs) for WNUT-17.
"""

from ml_collections import ConfigDict


def get_config(
    train: str = "",
    validation: str = "",
    test: str = "",
    init_from: str = "",
    epochs: float = 3.0,
    length: int = 0,
) -> ConfigDict:
    """The paper's recipe (appendix A.3) with its highest rate, 5e-5."""
    return ConfigDict(
        {
            "task": "tagging",
            "init_from": init_from,
            "data": {
                "train": train,
                "validation": validation,
                "test": test,
                "length": length,
            },
            "optimizer": {"learning_rate": 5e-5},
            "train": {"epochs": epochs},
        }
    )
