"""LSTM: language models and encoders before attention, `model_type` "lstm".

Language models of Zaremba et al., 2014 (https://arxiv.org/abs/1409.2329), and classifiers that
start from them (Dai and Le, 2015, https://arxiv.org/abs/1511.01432). With `bidirectional` half of
the hidden state reads the text backwards; then there is no language model. With a decoder: sequence
to sequence (Sutskever et al., 2014, https://arxiv.org/abs/1409.3215; Luong et al., 2015,
https://arxiv.org/abs/1508.04025), see `models.heads.text_to_text`.

transformers has no such class, so the format is this project's: `config.json` with the fields of
every family and `optional_fields`, and `model.safetensors` with the tensors of PyTorch's `nn.LSTM`
(or `nn.GRU`) under "model.lstm." (or "model.gru."), of a decoder under "decoder.lstm.", of
`nn.Embedding` under "model.word_embeddings." and of `nn.Linear`. The layers of a bidirectional
model have `hidden_size` / 2 units in each direction; its decoder has `hidden_size`.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from bert_jax.errors import OptionError
from bert_jax.families import bert
from bert_jax.families.family import Family, Rule, TensorNames
from bert_jax.models.config import ENCODER_SCOPE, EncoderConfig
from bert_jax.models.encoder_with_head import ClassifierOptions
from bert_jax.models.heads.text_to_text import DECODER_SCOPE


class Recurrent(Family):
    """A family of recurrent models."""

    def config(self, fields: Mapping[str, Any]) -> EncoderConfig:
        """The architecture; one that reads in one direction classifies by its last state.

        Raises:
            OptionError: see `Family.config`; or the width cannot be halved; or both directions are
                reversed.
        """
        config = super().config(fields)
        if config.reverse_input:
            if config.bidirectional:
                rule = "{model.bidirectional} is True, which reads both ways: set one to False"
                raise OptionError("model.reverse_input", True, rule)
            return dataclasses.replace(config, classifier_pooling="cls")  # it is read last
        if not config.bidirectional:
            last = ClassifierOptions(of_last_token=True)
            return dataclasses.replace(
                config, is_causal=True, has_pooler=False, heads=(*config.heads, last)
            )
        if config.hidden_size % 2:
            rule = "{model.bidirectional} is True: it must be even, half for each direction"
            raise OptionError("model.hidden_size", config.hidden_size, rule)
        return config


def _layer_rules(scope: str, tensors: str, kind: str) -> tuple[Rule, ...]:
    """The layers of encoder or decoder, in the scope of its parameters."""
    layers = tuple(
        Rule(
            f"{scope}/encoder/layers/{direction}{name}/{parameter}",
            f"{tensors}.{kind}.{tensor}_{suffix}_l{{layer}}{ending}",
            axes,
            transposed=axes > 0,
        )
        for direction, ending in (("", ""), ("backward_", "_reverse"))
        for name, suffix in (("input", "ih"), ("recurrent", "hh"))
        for parameter, tensor, axes in (("kernel", "weight", 1), ("bias", "bias", 0))
    )
    name = "embedding_projection"
    return *bert.dense(f"{scope}/encoder/{name}", f"{tensors}.{name}"), *layers


CONSTANTS = {
    "num_attention_heads": 1,
    "attention_probs_dropout_prob": 0.0,
    "layer_norm_eps": 1e-12,
    "type_vocab_size": 0,
    "embedding_norm": False,
    "position_kind": "relative",  # none is added to the embeddings
    "classifier_activation": False,
    "classifier_pooling": "mean",
}
"""Those of all layers that have no attention."""


def family(kind: str) -> Family:
    """The family whose layers are of a kind, "lstm" or "gru"."""
    prefix = kind.capitalize()
    return Recurrent(
        model_type=kind,
        class_names={
            "causal_lm": f"{prefix}ForCausalLM",
            "text_to_text": f"{prefix}ForConditionalGeneration",
            "classification": f"{prefix}ForSequenceClassification",
            "tagging": f"{prefix}ForTokenClassification",
            "encoder": f"{prefix}Model",
        },
        huggingface=TensorNames(
            (
                Rule(
                    f"{ENCODER_SCOPE}/embeddings/word_embeddings/embedding",
                    "model.word_embeddings.weight",
                ),
                *_layer_rules(ENCODER_SCOPE, "model", kind),
                *_layer_rules(DECODER_SCOPE, "decoder", kind),
                *(
                    bert.kernel(f"decoder_attention/{part}", f"decoder_attention.{part}")
                    for part in ("query", "key", "score", "combination")
                ),
                *bert.dense("lm_head/projection", "lm_head.projection"),
                Rule("lm_head/decoder", "lm_head.decoder.weight"),
                *bert.TASK_HEAD_RULES,
            ),
            prefix="model.",
        ),
        # base: Dai and Le, section 4.1. New matrices have the deviation 1 / sqrt(D), and embeddings
        # that of the states, 1: else little would reach the second layer.
        sizes={
            "tiny": {"num_hidden_layers": 2, "hidden_size": 128, "initializer_range": 0.09},
            "small": {"num_hidden_layers": 2, "hidden_size": 512, "initializer_range": 0.045},
            "base": {
                "num_hidden_layers": 1,
                "hidden_size": 1024,
                "embedding_size": 512,
                "initializer_range": 0.03,
            },
        },
        defaults={
            "scale_embedding": True,
            "hidden_dropout_prob": 0.2,
            "max_position_embeddings": 1024,
            "classifier_dropout": 0.0,  # the last layer's output has its own
        },
        constants=CONSTANTS | {"layer_kind": kind, "intermediate_size": 1, "hidden_act": "tanh"},
        optional_fields=(
            "embedding_size",
            "embedding_dropout",
            "scale_embedding",
            "bidirectional",
            "recurrent_dropout",
            "reverse_input",
            "decoder_attention",
            "decoder_start_token_id",
        ),
        required_fields=("vocab_size", "hidden_size", "num_hidden_layers", "scale_embedding"),
        token_types=False,
    )


FAMILY = family("lstm")
