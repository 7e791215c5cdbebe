r"""Distil: a small model, the student, learns what a large one, its teacher, answers.

    bert-jax train --workdir runs/small \
        --config configs/distill.py:task=classification,teacher=runs/reviews,train=reviews.tsv
    bert-jax train --workdir runs/small \
        --config configs/distill.py:task=pretraining,teacher=MODEL,corpus=corpora/mine

The student begins with some of the teacher's layers, spread evenly (`layers`; 6 of 12 are 0, 2, 4,
7, 9 and 11, as in DistilBERT). `task` is any task with labels, whose files and options are those of
its own config, or pre-training. `result.json` and the last lines have size, speed, score of both.

    tasks of GLUE                        --config.data.format=glue:mrpc --config.data.directory=DIR
    the teacher's scores computed once   --config.distillation.keep_logits=DIR
    hidden states, attention weights     --config.distillation.hidden_weight=1 (attention_weight)
    MiniLM, of 6 layers and 12           --config.distillation.value_relation_weight=1
        --config.distillation.attention_weight=1 --config.distillation.layer_map=0,0,0,0,0,12
    a student of another width           STUDENT as below; hidden_weight learns a projection
    a DistilBERT from layers of a BERT   --config.model.family=distilbert
    another student                      --config.init_from=STUDENT --config.model.keep_layers=None
    the student without its teacher      the task's own config with --config.model.keep_layers=3

Measured 2026-11-24 by `python -m benchmarks distill`, each run on one core of a CPU (AMD
EPYC), bfloat16, three seeds; the teacher is all-MiniLM-L6-v2 (6 layers) fine-tuned on the same
examples. Students with the teacher, and alone (their first layers from all-MiniLM-L6-v2 itself):

    examples                      teacher   3 layers: with, alone   2 layers: with, alone
    TREC, 3,000 (accuracy)           94.4     90.5   87.3             85.9   80.4
    MRPC, 2,000 (accuracy)           71.8     71.7   70.4             70.5   69.1
    SST-2, 4,000 (accuracy)          84.9     80.7   79.0             78.2   77.2
    CoNLL-2003, 2,000 (F1)           60.0     58.4   49.5             44.9   33.9
    s per 1,000 texts of SST-2       5.02     2.47                    1.76

With deviations, the other times and the commands: benchmarks/results/distillation.md.
"""

from ml_collections import ConfigDict


def get_config(
    task: str = "classification",
    teacher: str = "",
    layers: int = 3,
    train: str = "",
    validation: str = "",
    corpus: str = "",
) -> ConfigDict:
    """Task distillation: half the loss is that of the labels. Pre-training: DistilBERT's recipe."""
    config = {
        "task": task,
        "init_from": teacher,
        "model": {"keep_layers": layers},
        "distillation": {"teacher": teacher},
    }
    if task == "pretraining":
        config["data"] = {"corpus": corpus, "objective": "none"}
        config["distillation"] |= {"soft_weight": 5.0, "task_weight": 2.0, "cosine_weight": 1.0}
        config["optimizer"] = {
            "learning_rate": 5e-4,
            "warmup_ratio": 0.05,
            "decay_from": "warmup",
            "weight_decay": 0.0,
            "beta2": 0.98,
            "bias_correction": True,
            "max_grad_norm": 5.0,
        }
        config["train"] = {"epochs": 3.0, "global_batch_size": 250}
    else:
        config["data"] = {"train": train, "validation": validation}
        config["distillation"] |= {"soft_weight": 0.5, "task_weight": 0.5, "temperature": 2.0}
        config["optimizer"] = {"learning_rate": 5e-5}
    return ConfigDict(config)
