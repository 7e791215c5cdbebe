"""BERT: Devlin et al., 2018 (https://arxiv.org/abs/1810.04805), `model_type` "bert".

Sources: Hugging Face transformers, models/bert/modeling_bert.py; google-research/bert, modeling.py
and the heads of run_pretraining.py, run_classifier.py and run_squad.py.
"""

import re
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType

from bert_jax.families.family import Family, Rule, TensorNames
from bert_jax.models.config import ENCODER_SCOPE

_EMBEDDINGS, _LAYERS = f"{ENCODER_SCOPE}/embeddings", f"{ENCODER_SCOPE}/encoder/layers"


_CLASSES = {
    "encoder": "Model",
    "pretraining": "ForPreTraining",
    "masked_lm": "ForMaskedLM",
    "next_sentence": "ForNextSentencePrediction",
    "classification": "ForSequenceClassification",
    "tagging": "ForTokenClassification",
    "question_answering": "ForQuestionAnswering",
    "multiple_choice": "ForMultipleChoice",
}


def class_names(prefix: str, without: Collection[str] = ()) -> dict[str, str]:
    """The heads that most families have, and Hugging Face's classes, which begin with `prefix`."""
    return {head: prefix + name for head, name in _CLASSES.items() if head not in without}


def kernel(
    parameter: str, tensor: str, input_axes: int = 1, *, part: tuple[int, int] = (0, 1)
) -> Rule:
    """The weight of a dense layer in PyTorch, [out, in]; for `part` see `Rule`."""
    return Rule(f"{parameter}/kernel", f"{tensor}.weight", input_axes, transposed=True, part=part)


def dense(parameter: str, tensor: str, input_axes: int = 1) -> tuple[Rule, Rule]:
    """A dense layer in PyTorch."""
    return (
        kernel(parameter, tensor, input_axes),
        Rule(f"{parameter}/bias", f"{tensor}.bias"),
    )


def layer_norm(parameter: str, tensor: str) -> tuple[Rule, Rule]:
    """A LayerNorm in PyTorch."""
    return (
        Rule(f"{parameter}/scale", f"{tensor}.weight"),
        Rule(f"{parameter}/bias", f"{tensor}.bias"),
    )


def embedding_rules(prefix: str) -> tuple[Rule, ...]:
    """The embeddings under Hugging Face's names, which nearly all relatives share."""
    return (
        *(
            Rule(f"{_EMBEDDINGS}/{table}/embedding", f"{prefix}embeddings.{table}.weight")
            for table in ("word_embeddings", "position_embeddings", "token_type_embeddings")
        ),
        *layer_norm(f"{_EMBEDDINGS}/layer_norm", f"{prefix}embeddings.LayerNorm"),
    )


# The parameters of a layer: attention and its LayerNorm, feed-forward and its own.
_LAYER_PARTS = (
    *("attention/query", "attention/key", "attention/value", "attention/output", "attention_norm"),
    *("intermediate", "output", "output_norm"),
)
# Their tensors in Hugging Face's files of BERT.
LAYER_NAMES = (
    *("attention.self.query", "attention.self.key", "attention.self.value"),
    *("attention.output.dense", "attention.output.LayerNorm"),
    *("intermediate.dense", "output.dense", "output.LayerNorm"),
)
_MakeRules = Callable[..., tuple[Rule, ...]]


def layer_rules(
    layer: str, *names: str, dense: _MakeRules = dense, layer_norm: _MakeRules = layer_norm
) -> tuple[Rule, ...]:
    """The layers of a Transformer.

    Args:
        layer: what the names of a layer's tensors begin with, such as "bert.encoder.layer.{layer}."
        names: what follows it, in the order of `LAYER_NAMES`, the default; of attention alone, its
            five. A tensor that is named n times has n equal parts.
        dense: makes the rules of a dense layer.
        layer_norm: makes those of a LayerNorm.
    """
    names, rules = names or LAYER_NAMES, list[Rule]()
    for number, (name, parameter) in enumerate(zip(names, _LAYER_PARTS, strict=False)):
        where = f"{_LAYERS}/{parameter}", f"{layer}{name}"
        axes = 2 if parameter == "attention/output" else 1
        own = layer_norm(*where) if parameter.endswith("norm") else dense(*where, axes)
        part = names[:number].count(name), names.count(name)
        rules += (rule._replace(part=part) for rule in own)
    return tuple(rules)


def encoder_rules(prefix: str) -> tuple[Rule, ...]:
    """Embeddings, layers and pooler under Hugging Face's names.

    Args:
        prefix: prefix of the names, such as "bert.".
    """
    return (
        *embedding_rules(prefix),
        *layer_rules(f"{prefix}encoder.layer.{{layer}}."),
        *dense(f"{ENCODER_SCOPE}/pooler/dense", f"{prefix}pooler.dense"),
    )


def masked_lm_rules(
    scope: str, dense_name: str, norm: str, decoder: str = "decoder", bias: str = "bias"
) -> tuple[Rule, ...]:
    """The head of masked words; the names of its parts in a file follow `scope`.

    Its decoder is used only if it is not tied.
    """
    return (
        *dense("mlm_head/dense", f"{scope}{dense_name}"),
        *layer_norm("mlm_head/layer_norm", f"{scope}{norm}"),
        Rule("mlm_head/decoder", f"{scope}{decoder}.weight"),
        Rule("mlm_head/bias", f"{scope}{bias}"),
    )


MIX_RULES = (
    Rule("layer_mix/weights", "layer_mix.weights"),
    Rule("layer_mix/scale", "layer_mix.scale"),
)

# The heads of tasks, in every family. Hugging Face's classes have the first two. The names of the
# CRF are as in the package pytorch-crf, which is commonly used with them; others are only here.
TASK_HEAD_RULES = (
    *dense("classifier", "classifier"),
    *dense("qa_outputs", "qa_outputs"),
    *MIX_RULES,
    Rule("crf_transitions", "crf.transitions"),
    Rule("crf_start", "crf.start_transitions"),
    Rule("crf_end", "crf.end_transitions"),
    *(
        rule
        for part in ("start", "end_hidden", "end", "no_answer_hidden", "no_answer")
        for rule in dense(f"qa_joint/{part}", f"qa_joint.{part}")
    ),
)

# Constants that some versions of transformers saved with the parameters.
_IGNORED = re.compile(r"embeddings\.(position_ids|token_type_ids)$")

# LayerNorm of 2018. Only there: "gamma" may be part of a custom head.
_SPELLINGS = (
    (r"\bLayerNorm\.gamma$", "LayerNorm.weight"),
    (r"\bLayerNorm\.beta$", "LayerNorm.bias"),
)


def names(
    *rules: Rule, prefix: str = "", aliases: Mapping[str, str] = MappingProxyType({})
) -> TensorNames:
    """The names of a family's tensors in Hugging Face's files, also older ones."""
    return TensorNames(rules, prefix, ignored=_IGNORED, spellings=_SPELLINGS, aliases=aliases)


# The heads of all classes.
HEAD_RULES = (
    *masked_lm_rules("cls.predictions.", "transform.dense", "transform.LayerNorm"),
    *dense("nsp_head", "cls.seq_relationship"),
    *TASK_HEAD_RULES,
)

# The decoder is a PyTorch Linear, which computes with its own bias.
DECODER_BIAS = {"cls.predictions.decoder.bias": "cls.predictions.bias"}

HUGGINGFACE = names(*encoder_rules("bert."), *HEAD_RULES, prefix="bert.", aliases=DECODER_BIAS)


def google_dense(parameter: str, scope: str, input_axes: int = 1) -> tuple[Rule, Rule]:
    """A dense layer in TensorFlow: its kernel is [in, out]."""
    return (
        Rule(f"{parameter}/kernel", f"{scope}/kernel", input_axes),
        Rule(f"{parameter}/bias", f"{scope}/bias"),
    )


def google_layer_norm(parameter: str, scope: str) -> tuple[Rule, Rule]:
    """A LayerNorm in TensorFlow."""
    return Rule(f"{parameter}/scale", f"{scope}/gamma"), Rule(f"{parameter}/bias", f"{scope}/beta")


def _google_head(parameter: str, scope: str) -> tuple[Rule, Rule]:
    return (
        Rule(f"{parameter}/kernel", f"{scope}output_weights", 1, transposed=True),
        Rule(f"{parameter}/bias", f"{scope}output_bias"),
    )


# Every weight comes with its optimizer slots: of google-research/bert, of
# `tf.train.Optimizer`, of LAMB. Counters and loss scales are separate or in a scope.
_SLOTS = r".+/((adam|lamb)_[mv]|(Adam|LAMB|AdamWeightDecayOptimizer|LAMBOptimizer)(_1)?)"
_COUNTERS = r"(.+/)?(global_step|(good|bad)_steps|(current_)?loss_scale|beta[12]_power)"


def google_names(*rules: Rule) -> TensorNames:
    """The names of variables in Google's checkpoints, with the rules of a family's layers."""
    return TensorNames(
        (
            *(
                Rule(f"{_EMBEDDINGS}/{table}/embedding", f"bert/embeddings/{table}")
                for table in ("word_embeddings", "position_embeddings", "token_type_embeddings")
            ),
            *google_layer_norm(f"{_EMBEDDINGS}/layer_norm", "bert/embeddings/LayerNorm"),
            *rules,
            *google_dense(f"{ENCODER_SCOPE}/pooler/dense", "bert/pooler/dense"),
            *google_dense("mlm_head/dense", "cls/predictions/transform/dense"),
            *google_layer_norm("mlm_head/layer_norm", "cls/predictions/transform/LayerNorm"),
            Rule("mlm_head/bias", "cls/predictions/output_bias"),
            *_google_head("nsp_head", "cls/seq_relationship/"),
            # run_classifier.py opens no scope for its head, nor do third-party scripts for tagging
            # and multiple choice, which are derived from it.
            *_google_head("classifier", ""),
            *_google_head("qa_outputs", "cls/squad/"),
        ),
        ignored=re.compile(f"^({_SLOTS}|{_COUNTERS})$"),
    )


GOOGLE = google_names(
    *layer_rules(
        "bert/encoder/layer_{layer}/",
        *(name.replace(".", "/") for name in LAYER_NAMES),
        dense=google_dense,
        layer_norm=google_layer_norm,
    )
)


def size(layers: int, width: int, heads: int, feed_forward: int) -> dict[str, int]:
    """The fields of an encoder of this size."""
    return {
        "num_hidden_layers": layers,
        "hidden_size": width,
        "num_attention_heads": heads,
        "intermediate_size": feed_forward,
    }


# Layers, width, heads. tiny to medium: google-research/bert, "24 smaller models" (Turc et al.,
# 2019); base and large: the paper, section 3. Feed-forward width is 4 D, head width is 64.
SIZES = {
    name: size(layers, width, heads, 4 * width)
    for name, layers, width, heads in (
        ("tiny", 2, 128, 2),
        ("mini", 4, 256, 4),
        ("small", 4, 512, 8),
        ("medium", 8, 512, 8),
        ("base", 12, 768, 12),
        ("large", 24, 1024, 16),
    )
}

REQUIRED_FIELDS = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
)
# The relatives' classes have other defaults of these.
REQUIRED_IN_RELATIVES = (*REQUIRED_FIELDS, "hidden_act", "max_position_embeddings")

FAMILY = Family(
    model_type="bert",
    class_names=class_names("Bert"),
    huggingface=HUGGINGFACE,
    google=GOOGLE,
    sizes=SIZES,
    required_fields=REQUIRED_FIELDS,
)
