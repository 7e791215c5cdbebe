"""ColBERT of Hofstätter et al., 2020 (https://arxiv.org/abs/2010.02666), `model_type` "ColBERT".

A DistilBERT with a linear layer on each hidden state, see
`checkpoints.sentence_transformers.colbert`. Its `config.json` names the model that it was made of
in place of the sizes. Source: the class in the model card of
sebastian-hofstaetter/colbert-distilbert-margin_mse-T2-msmarco.
"""

import dataclasses

from bert_jax.families import bert, distilbert

FAMILY = dataclasses.replace(
    distilbert.FAMILY,
    model_type="ColBERT",
    class_names={"encoder": "ColBERT"},
    huggingface=bert.names(*distilbert.encoder_rules("bert_model."), prefix="bert_model."),
    defaults={**distilbert.FAMILY.sizes["base"], "vocab_size": 30522},
    required_fields=(),
    fixed_fields={"bert_model": "distilbert-base-uncased"},
    # `dropout` belongs to the layer after the encoder.
    field_names={
        name: key
        for name, key in distilbert.FAMILY.field_names.items()
        if name != "hidden_dropout_prob"
    },
)
