"""BERT: Devlin et al., 2018 (https://arxiv.org/abs/1810.04805), `model_type` "bert".

Sources: Hugging Face transformers, models/bert/modeling_bert.py; google-research/bert, modeling.py
and the heads of run_pretraining.py, run_classifier.py and run_squad.py.
"""

import re

from bert_jax.families.family import Family, Rule, TensorNames
from bert_jax.models.config import ENCODER_SCOPE, Head
from bert_jax.tokenization.interface import DEFAULT_TEMPLATE, WORDPIECE


def dense(parameter: str, tensor: str, input_axes: int = 1) -> tuple[Rule, Rule]:
    """A dense layer in PyTorch: its weight is [out, in]."""
    return (
        Rule(f"{parameter}/kernel", f"{tensor}.weight", input_axes, transposed=True),
        Rule(f"{parameter}/bias", f"{tensor}.bias"),
    )


def layer_norm(parameter: str, tensor: str) -> tuple[Rule, Rule]:
    """A LayerNorm in PyTorch."""
    return (
        Rule(f"{parameter}/scale", f"{tensor}.weight"),
        Rule(f"{parameter}/bias", f"{tensor}.bias"),
    )


def encoder_rules(prefix: str) -> tuple[Rule, ...]:
    """Embeddings, layers and pooler under Hugging Face's names, which many relatives share.

    Args:
        prefix: as "bert.".
    """
    embeddings, layers = f"{ENCODER_SCOPE}/embeddings", f"{ENCODER_SCOPE}/encoder/layers"
    layer = f"{prefix}encoder.layer.{{layer}}"
    return (
        *(
            Rule(f"{embeddings}/{table}/embedding", f"{prefix}embeddings.{table}.weight")
            for table in ("word_embeddings", "position_embeddings", "token_type_embeddings")
        ),
        *layer_norm(f"{embeddings}/layer_norm", f"{prefix}embeddings.LayerNorm"),
        *dense(f"{layers}/attention/query", f"{layer}.attention.self.query"),
        *dense(f"{layers}/attention/key", f"{layer}.attention.self.key"),
        *dense(f"{layers}/attention/value", f"{layer}.attention.self.value"),
        *dense(f"{layers}/attention/output", f"{layer}.attention.output.dense", input_axes=2),
        *layer_norm(f"{layers}/attention_norm", f"{layer}.attention.output.LayerNorm"),
        *dense(f"{layers}/intermediate", f"{layer}.intermediate.dense"),
        *dense(f"{layers}/output", f"{layer}.output.dense"),
        *layer_norm(f"{layers}/output_norm", f"{layer}.output.LayerNorm"),
        *dense(f"{ENCODER_SCOPE}/pooler/dense", f"{prefix}pooler.dense"),
    )


HUGGINGFACE = TensorNames(
    rules=(
        *encoder_rules("bert."),
        *dense("mlm_head/dense", "cls.predictions.transform.dense"),
        *layer_norm("mlm_head/layer_norm", "cls.predictions.transform.LayerNorm"),
        Rule("mlm_head/decoder", "cls.predictions.decoder.weight"),
        Rule("mlm_head/bias", "cls.predictions.bias"),
        *dense("nsp_head", "cls.seq_relationship"),
        *dense("classifier", "classifier"),
        *dense("qa_outputs", "qa_outputs"),
        # Not Hugging Face's: the names of the package pytorch-crf, commonly put on its models.
        Rule("crf_transitions", "crf.transitions"),
        Rule("crf_start", "crf.start_transitions"),
        Rule("crf_end", "crf.end_transitions"),
    ),
    prefix="bert.",
    # Constants that some versions of transformers saved with the parameters.
    ignored=re.compile(r"embeddings\.(position_ids|token_type_ids)$"),
    # LayerNorm of 2018. Only there: "gamma" may be part of somebody's own head.
    spellings=(
        (r"\bLayerNorm\.gamma$", "LayerNorm.weight"),
        (r"\bLayerNorm\.beta$", "LayerNorm.bias"),
    ),
    # The decoder is a PyTorch Linear with its own bias, and computes with that one.
    aliases={"cls.predictions.decoder.bias": "cls.predictions.bias"},
)


def _variables_dense(parameter: str, scope: str, input_axes: int = 1) -> tuple[Rule, Rule]:
    return (
        Rule(f"{parameter}/kernel", f"{scope}/kernel", input_axes),
        Rule(f"{parameter}/bias", f"{scope}/bias"),
    )


def _variables_norm(parameter: str, scope: str) -> tuple[Rule, Rule]:
    return Rule(f"{parameter}/scale", f"{scope}/gamma"), Rule(f"{parameter}/bias", f"{scope}/beta")


def _variables_head(parameter: str, scope: str) -> tuple[Rule, Rule]:
    return (
        Rule(f"{parameter}/kernel", f"{scope}output_weights", 1, transposed=True),
        Rule(f"{parameter}/bias", f"{scope}output_bias"),
    )


_EMBEDDINGS, _LAYERS = f"{ENCODER_SCOPE}/embeddings", f"{ENCODER_SCOPE}/encoder/layers"
_SCOPE = "bert/encoder/layer_{layer}"

# Beside every weight stand its optimizer slots: those that google-research/bert names, those of
# `tf.train.Optimizer`, LAMB's. Counters and loss scales stand alone or in a scope.
_SLOTS = r".+/((adam|lamb)_[mv]|(Adam|LAMB|AdamWeightDecayOptimizer|LAMBOptimizer)(_1)?)"
_COUNTERS = r"(.+/)?(global_step|(good|bad)_steps|(current_)?loss_scale|beta[12]_power)"

GOOGLE = TensorNames(
    rules=(
        *(
            Rule(f"{_EMBEDDINGS}/{table}/embedding", f"bert/embeddings/{table}")
            for table in ("word_embeddings", "position_embeddings", "token_type_embeddings")
        ),
        *_variables_norm(f"{_EMBEDDINGS}/layer_norm", "bert/embeddings/LayerNorm"),
        *_variables_dense(f"{_LAYERS}/attention/query", f"{_SCOPE}/attention/self/query"),
        *_variables_dense(f"{_LAYERS}/attention/key", f"{_SCOPE}/attention/self/key"),
        *_variables_dense(f"{_LAYERS}/attention/value", f"{_SCOPE}/attention/self/value"),
        *_variables_dense(f"{_LAYERS}/attention/output", f"{_SCOPE}/attention/output/dense", 2),
        *_variables_norm(f"{_LAYERS}/attention_norm", f"{_SCOPE}/attention/output/LayerNorm"),
        *_variables_dense(f"{_LAYERS}/intermediate", f"{_SCOPE}/intermediate/dense"),
        *_variables_dense(f"{_LAYERS}/output", f"{_SCOPE}/output/dense"),
        *_variables_norm(f"{_LAYERS}/output_norm", f"{_SCOPE}/output/LayerNorm"),
        *_variables_dense(f"{ENCODER_SCOPE}/pooler/dense", "bert/pooler/dense"),
        *_variables_dense("mlm_head/dense", "cls/predictions/transform/dense"),
        *_variables_norm("mlm_head/layer_norm", "cls/predictions/transform/LayerNorm"),
        Rule("mlm_head/bias", "cls/predictions/output_bias"),
        *_variables_head("nsp_head", "cls/seq_relationship/"),
        # run_classifier.py opens no scope for its head, nor do the scripts of others for tagging
        # and multiple choice, which were made after it.
        *_variables_head("classifier", ""),
        *_variables_head("qa_outputs", "cls/squad/"),
    ),
    ignored=re.compile(f"^({_SLOTS}|{_COUNTERS})$"),
)

FAMILY = Family(
    model_type="bert",
    class_names={
        Head.ENCODER: "BertModel",
        Head.PRETRAINING: "BertForPreTraining",
        Head.MASKED_LM: "BertForMaskedLM",
        Head.NEXT_SENTENCE: "BertForNextSentencePrediction",
        Head.CLASSIFICATION: "BertForSequenceClassification",
        Head.TAGGING: "BertForTokenClassification",
        Head.QUESTION_ANSWERING: "BertForQuestionAnswering",
        Head.MULTIPLE_CHOICE: "BertForMultipleChoice",
    },
    # [CLS] A [SEP] or [CLS] A [SEP] B [SEP], where B and its [SEP] have token type 1.
    template=DEFAULT_TEMPLATE,
    huggingface=HUGGINGFACE,
    google=GOOGLE,
    required_fields=(
        "vocab_size",
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "intermediate_size",
    ),
    fixed_fields={
        "position_embedding_type": "absolute",
        "is_decoder": False,
        "add_cross_attention": False,
    },
    heads_of_labels=(Head.CLASSIFICATION, Head.TAGGING, Head.MULTIPLE_CHOICE),
    label_parameters=("classifier/", "crf_"),
    position_offset=0,
    tokenizer_kind=WORDPIECE,
)
