"""Presets of published implementations: the options in which they differ.

A preset sets keys of the config before all other keys, which replace it; a training prints what
differs. Its model fields are for new models: a model that a training starts from keeps its own. A
task takes the keys that it has.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from bert_jax.errors import require_one_of
from bert_jax.models.config import EncoderConfig


class Preset(NamedTuple):
    """The switches of one implementation.

    Attributes:
        model: fields of `EncoderConfig`.
        keys: dotted keys of a config.
        tasks: further keys for one task.
    """

    model: Mapping[str, Any]
    keys: Mapping[str, Any]
    tasks: Mapping[str, Mapping[str, Any]] = {}


_DROPOUT = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
_NO_DROPOUT = dict.fromkeys(_DROPOUT, 0.0)
_ADAM = {
    "optimizer.name": "adamw",
    "optimizer.beta1": 0.9,
    "optimizer.beta2": 0.999,
    "optimizer.epsilon": 1e-6,
    "optimizer.weight_decay": 0.01,
    "optimizer.bias_correction": False,
    "optimizer.decay": "linear",
    "optimizer.max_grad_norm": 1.0,
    "optimizer.layer_decay": 1.0,
}
_MASKS = {
    "data.masking": "token",
    "data.mask_fraction": 0.15,
    "data.mask_rounding": "nearest",
    "data.mask_replace_prob": 0.8,
    "data.random_replace_prob": 0.1,
    "data.random_tokens": "vocabulary",
}


_TRANSFORMER = {
    **_ADAM,
    "optimizer.beta2": 0.98,
    "optimizer.epsilon": 1e-9,
    "optimizer.weight_decay": 0.0,
    "optimizer.bias_correction": True,
    "optimizer.decay": "inverse_sqrt",
    "optimizer.max_grad_norm": 0.0,
}
_BEAMS = {
    "data.label_smoothing": 0.1,
    "generation.num_beams": 4,
    "generation.length_penalty": 0.6,
    "generation.penalty": "wmt",
}
# ColBERT's queries and documents begin with a marker, and queries are filled up with masks.
_MARKED = {"markers": True, "expansion": "fixed", "query_length": 32, "skip_punctuation": True}


def _t5(**model: Any) -> Preset:
    """T5's two versions: the paper, section 3.1; t5/models/gin, t5/data/preprocessors.py."""
    keys = {
        "optimizer.name": "adafactor",
        "optimizer.weight_decay": 0.0,
        "optimizer.max_grad_norm": 0.0,
    }
    span_keys = {
        "optimizer.decay": "constant_inverse_sqrt",
        "data.length": 512,
        "data.noise_fraction": 0.15,
        "data.mean_span_length": 3.0,
        "data.cross_documents": True,
    }
    text_keys = {
        "optimizer.decay": "constant",
        "data.packing": True,
        "data.label_smoothing": 0.0,
    }
    fields = {"layer_norm_eps": 1e-6, **model}
    return Preset(fields, keys, {"span_corruption": span_keys, "text_to_text": text_keys})


def _late_interaction(**data: Any) -> Preset:
    """A dialect of ColBERT: what the arguments do not set in section `data` is as here."""
    common = {
        "projection": 128,
        "projection_bias": False,
        "normalize": True,
        "query_prompt": "",
        "document_prompt": "",
        "markers": False,
        "expansion_attend": False,
        "skip_punctuation": False,
        "similarity": "maxsim",
    }
    keys = {f"data.{name}": value for name, value in {**common, **data}.items()}
    return Preset({}, {}, tasks={"late_interaction": keys})


PRESETS: dict[str, Preset] = {
    # google-research/bert as last released: modeling.py (gelu is the tanh form), optimization.py,
    # create_pretraining_data.py.
    "google": Preset(
        {"hidden_act": "gelu_new", "layer_norm_eps": 1e-12, **_DROPOUT},
        {
            **_ADAM,
            **_MASKS,
            "optimizer.decay_from": "start",
            "data.objective": "nsp",
            "data.short_probability": 0.1,
            "data.packing": False,
        },
    ),
    # transformers: the defaults of BertConfig and TrainingArguments, examples/…/run_mlm.py and
    # DataCollatorForLanguageModeling, which masks each token on its own, so that their number
    # varies more than with any rounding here.
    "huggingface": Preset(
        {"hidden_act": "gelu", "layer_norm_eps": 1e-12, **_DROPOUT},
        {
            **_ADAM,
            **_MASKS,
            "optimizer.epsilon": 1e-8,
            "optimizer.weight_decay": 0.0,
            "optimizer.bias_correction": True,
            "optimizer.decay_from": "warmup",
            "data.objective": "none",
            "data.cross_documents": True,
            "data.short_probability": 0.0,
            "data.mask_rounding": "random",
        },
    ),
    # fairseq, examples/roberta; the paper, tables 9 and 10.
    "roberta": Preset(
        {"hidden_act": "gelu", "layer_norm_eps": 1e-5, **_DROPOUT},
        {
            **_ADAM,
            **_MASKS,
            "optimizer.beta2": 0.98,
            "optimizer.bias_correction": True,
            "optimizer.decay_from": "warmup",
            "optimizer.max_grad_norm": 0.0,
            "data.objective": "none",
            "data.cross_documents": True,
            "data.short_probability": 0.0,
            "data.mask_rounding": "random",
            "data.random_tokens": "non_special",
        },
    ),
    # google-research/albert: create_pretraining_data.py, lamb_optimizer.py; models of version 2.
    "albert": Preset(
        {"hidden_act": "gelu_new", "layer_norm_eps": 1e-12, **_NO_DROPOUT},
        {**_ADAM, "optimizer.decay_from": "start"},
        tasks={
            "pretraining": {
                **_MASKS,
                "optimizer.name": "lamb",
                "data.objective": "sop",
                "data.masking": "ngram",
                "data.short_probability": 0.1,
                "data.max_predictions": 20,
            }
        },
    ),
    # google-research/electra: configure_pretraining.py, configure_finetuning.py (0.9 for large),
    # build_pretraining_dataset.py.
    "electra": Preset(
        {"hidden_act": "gelu", "layer_norm_eps": 1e-12, **_DROPOUT},
        {**_ADAM, "optimizer.decay_from": "start", "optimizer.layer_decay": 0.8},
        tasks={
            "replaced_tokens": {
                **_MASKS,
                "optimizer.layer_decay": 1.0,
                "data.objective": "none",
                "data.short_probability": 0.05,
                "data.masking": "token_with_replacement",
                "data.mask_replace_prob": 0.85,
                "data.random_replace_prob": 0.0,
                "replaced_tokens.generator_weight": 1.0,
                "replaced_tokens.discriminator_weight": 50.0,
                "replaced_tokens.temperature": 1.0,
            }
        },
    ),
    # mlcommons/training, language_model/tensorflow/bert: the second phase of pre-training.
    "mlperf": Preset(
        {"hidden_act": "gelu_new", "layer_norm_eps": 1e-12, **_DROPOUT},
        {
            **_ADAM,
            **_MASKS,
            "optimizer.name": "lamb",
            "optimizer.decay_from": "start",
            "data.objective": "nsp",
            "data.length": 512,
            "data.max_predictions": 76,
            "data.short_probability": 0.1,
        },
    ),
    # AnswerDotAI/ModernBERT: yamls/modernbert/modernbert-base-pretrain.yaml. There weight decay is
    # 1e-5 of a weight a step at the peak rate of 8e-4; here it is a multiple of the rate. A dropout
    # of 0.1 behind attention alone is not set: `config.json` has one rate for this and for the
    # attention weights.
    "modernbert": Preset(
        {"hidden_act": "gelu", "layer_norm_eps": 1e-5},
        {
            **_ADAM,
            **_MASKS,
            "optimizer.name": "stable_adamw",
            "optimizer.beta2": 0.98,
            "optimizer.weight_decay": 1e-5 / 8e-4,
            "optimizer.bias_correction": True,
            "optimizer.decay": "constant",
            "optimizer.max_grad_norm": 0.0,
            "data.objective": "none",
            "data.short_probability": 0.0,
            "data.mask_fraction": 0.3,
            "data.validation_mask_fraction": 0.15,
            "data.mask_rounding": "random",
            "data.packing": True,
        },
    ),
    # Vaswani et al., 2017, sections 3.4 and 5 to 6.1: base; big averages 20 checkpoints.
    "transformer": Preset(
        {
            "hidden_act": "relu",
            "norm_first": False,
            "hidden_dropout_prob": 0.1,
            "attention_probs_dropout_prob": 0.0,
            "tie_word_embeddings": True,
            "scale_embedding": True,
        },
        _TRANSFORMER,
        tasks={
            "text_to_text": {
                **_BEAMS,
                "tokenizer.model_type": "bpe",
                "data.packing": False,
                "train.average_checkpoints": 5,
                "train.keep_checkpoints": 5,
                "train.export": "latest",
            }
        },
    ),
    # google/flax, examples/wmt: configs/default.py, models.py, train.py; its layers are normalised
    # first, which no family with sinusoidal positions has. Attention without biases, and logits
    # divided by sqrt(D), have no switch here.
    "wmt": Preset(
        {
            "hidden_act": "relu",
            "norm_first": True,
            "layer_norm_eps": 1e-6,
            **_DROPOUT,
            "activation_dropout": 0.1,
            "tie_word_embeddings": True,
            "scale_embedding": False,
        },
        _TRANSFORMER,
        tasks={
            "text_to_text": {
                **_BEAMS,
                "tokenizer.model_type": "unigram",
                "data.length": 256,
                "data.packing": True,
                "train.average_checkpoints": 1,
            }
        },
    ),
    # Radford et al., 2018, section 4.1; epsilon: openai/finetune-transformer-lm, train.py.
    "gpt1": Preset(
        {"hidden_act": "gelu_new", "layer_norm_eps": 1e-5, "embedding_dropout": 0.1, **_DROPOUT},
        {
            **_ADAM,
            "optimizer.epsilon": 1e-8,
            "optimizer.bias_correction": True,
            "optimizer.decay_from": "warmup",
        },
        tasks={"causal_lm": {"optimizer.decay": "cosine", "data.length": 512}},
    ),
    # karpathy/nanoGPT: train.py and model.py, the smallest GPT-2; its cosine ends at a tenth of the
    # peak, and here at 0.
    "nanogpt": Preset(
        {
            "hidden_act": "gelu",
            "layer_norm_eps": 1e-5,
            "has_biases": False,
            "has_norm_biases": False,
            "embedding_dropout": 0.0,
            **_NO_DROPOUT,
        },
        {
            **_ADAM,
            "optimizer.beta2": 0.95,
            "optimizer.epsilon": 1e-8,
            "optimizer.weight_decay": 0.1,
            "optimizer.bias_correction": True,
            "optimizer.decay": "cosine",
            "optimizer.decay_from": "warmup",
        },
        tasks={"causal_lm": {"data.length": 1024, "data.cross_documents": True}},
    ),
    "t5": _t5(hidden_act="relu", tie_word_embeddings=True, activation_dropout=0.1, **_DROPOUT),
    # Version 1.1 was pre-trained without dropout; fine-tuning has 0.1.
    "t5_v1_1": _t5(
        hidden_act="gated-gelu",
        tie_word_embeddings=False,
        activation_dropout=0.0,
        **_NO_DROPOUT,
    ),
    # stanford-futuredata/ColBERT: colbert/infra/config/settings.py, modeling/tokenization/.
    "colbert": _late_interaction(
        **_MARKED, query_prompt="[unused0] ", document_prompt="[unused1] ", length=220
    ),
    # Hofstätter et al., 2020: sebastian-hofstaetter/neural-ranking-kd; matchmaker, colbert.py.
    "hofstaetter": _late_interaction(
        projection=768,
        projection_bias=True,
        normalize=False,
        expansion="append",
        expansion_attend=True,
        query_length=30,
        length=200,
    ),
    # PyLate 1.6, pylate/models/colbert.py.
    "pylate": _late_interaction(**_MARKED, query_prompt="[Q] ", document_prompt="[D] ", length=180),
}


def keys_of_preset(name: str, task: str) -> dict[str, Any]:
    """The keys that a preset sets for a task, without section `model`.

    The task may lack some of them.

    Raises:
        OptionError: the preset is unknown.
    """
    require_one_of("preset", name, PRESETS)
    preset = PRESETS[name]
    return {**preset.keys, **preset.tasks.get(task, {})}


def model_fields(name: str) -> Mapping[str, Any]:
    """The fields of a new model; none without a preset."""
    return PRESETS[name].model if name else {}


def deviations(keys: Mapping[str, Any], model: EncoderConfig) -> Iterator[str]:
    """A line for each switch that is not as in a preset.

    Args:
        keys: all keys of a config.
        model: architecture of the model that is trained.
    """
    preset = keys["preset"]
    if not preset:
        return
    for key, expected in keys_of_preset(preset, keys["task"]).items():
        section, _, name = key.partition(".")
        value = keys.get(section, {}).get(name)  # None: the task does not have the key
        if value not in (None, expected):
            yield f"not as in preset {preset}: {key} is {value}, there {expected}"
    for name, expected in model_fields(preset).items():
        if (value := getattr(model, name)) not in (None, expected):
            yield f"not as in preset {preset}: model.{name} is {value}, there {expected}"
