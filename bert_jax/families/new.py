"""GTE under the name of its published files, `model_type` "new".

Their `auto_map` names a program that this package never runs; it computes what `families.gte` does,
with two heads more. Source: Alibaba-NLP/new-impl, modeling.py.
"""

import dataclasses

from bert_jax.families import bert, gte

FAMILY = dataclasses.replace(
    gte.FAMILY,
    model_type="new",
    class_names=bert.class_names("New", without=("pretraining", "next_sentence")),
    huggingface=gte.tensor_names("new."),
    # The activation of the MLM head is `hidden_act`.
    constants={key: value for key, value in gte.FAMILY.constants.items() if key != "heads"},
)
