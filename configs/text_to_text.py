r"""Fine-tuning of a model that writes a text for a text: T5, BART, Marian.

    bert-jax train --config configs/text_to_text.py:train=pairs.jsonl,init_from=MODEL \
        --workdir runs/summaries

MODEL is a model directory or a hub id (google-t5/t5-small). The file is a table, or JSON lines,
with a column or key for the source and one for its target, under a usual name (source and target,
document and summary, question and answers, …) or `--config.data.source_column=…` and
`target_column`; a list of targets has several accepted ones. `prefix` precedes every source, as T5
expects it: `--config.data.prefix="summarize: "`.

`kind=answers` scores short answers by exact match and F1: of questions, which a model answers from
what it knows, or about passages, `format=squad,train=train-v1.1.json`, or of the tasks of GLUE,
whose files become texts as in T5's paper, as those of SQuAD do:

    bert-jax train --workdir runs/sst2 --config \
        configs/text_to_text.py:directory=glue/SST-2,format=glue:sst2,init_from=MODEL,kind=answers

Optimizer and rate are those of T5's fine-tuning (Raffel et al., 2020, section 3.1.2), 128 rows of
packed pairs a step. Not measured here.
"""

from ml_collections import ConfigDict

METRICS = {"texts": ["bleu", "chrf"], "answers": ["exact_match", "f1"]}


def get_config(
    train: str = "",
    validation: str = "",
    test: str = "",
    init_from: str = "",
    epochs: float = 3.0,
    length: int = 512,
    target_length: int = 128,
    directory: str = "",
    format: str = "",
    kind: str = "texts",
) -> ConfigDict:
    """Adafactor at a constant 0.001; `kind` chooses the metrics: of texts, or of answers."""
    return ConfigDict(
        {
            "task": "text_to_text",
            "init_from": init_from,
            "data": {
                "train": train,
                "validation": validation,
                "test": test,
                "directory": directory,
                "format": format,
                "length": length,
                "target_length": target_length,
                "label_smoothing": 0.0,
                "metrics": METRICS[kind],
            },
            "optimizer": {
                "name": "adafactor",
                "learning_rate": 0.001,
                "warmup_ratio": 0.0,
                "decay": "constant",
                "bias_correction": False,
                "weight_decay": 0.0,
                "max_grad_norm": 0.0,
            },
            "train": {"epochs": epochs, "global_batch_size": 128},
        }
    )
