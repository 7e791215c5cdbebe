"""Late interaction: the vectors of all tokens of a query and of a document are compared.

Source: ColBERT (Khattab and Zaharia, 2020, https://arxiv.org/abs/2004.12832), section 3. The
presets "colbert", "hofstaetter" and "pylate" set the keys in which the implementations differ.
"""

from bert_jax.tasks.late_interaction.task import TRAIN
