"""BERT_CAT: Hofstätter et al., 2020 (https://arxiv.org/abs/2010.02666), `model_type` "BERT_Cat".

A DistilBERT reads `[CLS] query [SEP] passage [SEP]`; the score is a linear function of the hidden
state of [CLS]. Its `config.json` names the model that it was made of in place of the sizes. Source:
the class in the model card of sebastian-hofstaetter/distilbert-cat-margin_mse-T2-msmarco.
"""

import dataclasses

from bert_jax.families import bert, distilbert

FAMILY = dataclasses.replace(
    distilbert.FAMILY,
    model_type="BERT_Cat",
    class_names={"classification": "BERT_Cat"},
    huggingface=bert.names(
        *distilbert.encoder_rules("bert_model."),
        *bert.dense("classifier", "_classification_layer"),
        prefix="bert_model.",
    ),
    defaults={
        **distilbert.FAMILY.sizes["base"],
        "vocab_size": 30522,
        "num_labels": 1,
        "classifier_dropout": 0.0,
    },
    # The vector of [CLS] takes the place of a pooler's output.
    constants={
        **distilbert.FAMILY.constants,
        "has_pooler": True,
        "classifier_activation": False,
        "heads": (),
    },
    required_fields=(),
    fixed_fields={"bert_model": "distilbert-base-uncased"},
    problem_type="regression",
)
