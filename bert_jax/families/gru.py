"""GRU: Cho et al., 2014 (https://arxiv.org/abs/1406.1078), `model_type` "gru"; see `lstm`."""

from bert_jax.families import lstm

FAMILY = lstm.family("gru")
