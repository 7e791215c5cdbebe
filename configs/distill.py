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

Measured 2026-11-23 on 2 CPU cores shared with other work, TREC, 500 test questions, seeds 0 and 1.
Teacher: all-MiniLM-L6-v2, 6 layers, fine-tuned on all 5,452 questions by configs/classification.py
(5e-5, 3 epochs): accuracy 96.4 %. Students of 3 layers, from 1,500 questions, 4 epochs:
--config.data.limit=1500 --config.data.length=48 --config.train.epochs=4, with keep_logits 89.8 and
90.6 %, without the teacher 89.0 and 90.0 %: less than the standard error of this test set, 1.3.
The student has 76.6 % of the parameters. Two layers with the teacher, seed 0: 87.2 %. The times per
text were taken while the machine was busy, and say nothing.
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
