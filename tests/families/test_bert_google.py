"""Google's names: by hand, complete, and the same tensors as Hugging Face's conversion gives."""

import re

import numpy as np
import pytest

from bert_jax.checkpoints.parameters import to_tensors
from bert_jax.families.bert import GOOGLE, HUGGINGFACE
from bert_jax.models.config import EncoderConfig
from bert_jax.models.head import find_head
from tests.random_params import random_params

# L 2, D 6, N 3, H 2, F 5, V 7, C 4: no wrong transposition fits by chance.
CONFIG = EncoderConfig(
    vocab_size=7,
    hidden_size=6,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=5,
    max_position_embeddings=9,
    num_labels=4,
)

# Variables of google-research/bert, modeling.py: shapes as TensorFlow declares them.
ENCODER = {
    "bert/embeddings/word_embeddings": (7, 6),
    "bert/embeddings/position_embeddings": (9, 6),
    "bert/embeddings/token_type_embeddings": (2, 6),
    "bert/embeddings/LayerNorm/gamma": (6,),
    "bert/embeddings/LayerNorm/beta": (6,),
}
for layer in ("bert/encoder/layer_0", "bert/encoder/layer_1"):
    ENCODER |= {
        f"{layer}/attention/self/query/kernel": (6, 6),
        f"{layer}/attention/self/query/bias": (6,),
        f"{layer}/attention/self/key/kernel": (6, 6),
        f"{layer}/attention/self/key/bias": (6,),
        f"{layer}/attention/self/value/kernel": (6, 6),
        f"{layer}/attention/self/value/bias": (6,),
        f"{layer}/attention/output/dense/kernel": (6, 6),
        f"{layer}/attention/output/dense/bias": (6,),
        f"{layer}/attention/output/LayerNorm/gamma": (6,),
        f"{layer}/attention/output/LayerNorm/beta": (6,),
        f"{layer}/intermediate/dense/kernel": (6, 5),
        f"{layer}/intermediate/dense/bias": (5,),
        f"{layer}/output/dense/kernel": (5, 6),
        f"{layer}/output/dense/bias": (6,),
        f"{layer}/output/LayerNorm/gamma": (6,),
        f"{layer}/output/LayerNorm/beta": (6,),
    }
POOLER = {"bert/pooler/dense/kernel": (6, 6), "bert/pooler/dense/bias": (6,)}
WORDS = {
    "cls/predictions/transform/dense/kernel": (6, 6),
    "cls/predictions/transform/dense/bias": (6,),
    "cls/predictions/transform/LayerNorm/gamma": (6,),
    "cls/predictions/transform/LayerNorm/beta": (6,),
    "cls/predictions/output_bias": (7,),
}
NEXT_SENTENCE = {
    "cls/seq_relationship/output_weights": (2, 6),
    "cls/seq_relationship/output_bias": (2,),
}
VARIABLES = {
    "encoder": ENCODER | POOLER,
    "pretraining": ENCODER | POOLER | WORDS | NEXT_SENTENCE,
    "masked_lm": ENCODER | WORDS,
    "next_sentence": ENCODER | POOLER | NEXT_SENTENCE,
    "classification": ENCODER | POOLER | {"output_weights": (4, 6), "output_bias": (4,)},
    "tagging": ENCODER | {"output_weights": (4, 6), "output_bias": (4,)},
    "multiple_choice": ENCODER | POOLER | {"output_weights": (1, 6), "output_bias": (1,)},
    "question_answering": ENCODER
    | {"cls/squad/output_weights": (2, 6), "cls/squad/output_bias": (2,)},
}


@pytest.fixture(params=list(VARIABLES))
def head(request):
    return request.param


@pytest.fixture
def module(head):
    return find_head(head).make(CONFIG)


@pytest.fixture
def params(module):
    return random_params(module, all_differ=True)


def test_names_and_shapes_by_hand(head, module, params):
    tensors = to_tensors(params, GOOGLE, module)
    assert {name: tensor.shape for name, tensor in tensors.items()} == VARIABLES[head]
    assert all(tensor.flags.c_contiguous for tensor in tensors.values())


def as_hugging_face_converts(name: str, variable: np.ndarray) -> tuple[str, np.ndarray]:
    """What became of a variable when the released models were converted for PyTorch.

    Source: transformers 4, models/bert/modeling_bert.py, load_tf_weights_in_bert: kernels are
    transposed and nothing else is; `squad` and bare outputs belong to the head.
    """
    renamed = re.sub(r"layer_(\d+)", r"layer.\1", name.replace("/", "."))
    renamed = renamed.replace("cls.squad.", "qa_outputs.")
    renamed = re.sub(r"(kernel|gamma|output_weights|(?<=_embeddings))$", ".weight", renamed)
    renamed = re.sub(r"(beta|output_bias)$", "bias", renamed).replace("..", ".")
    if renamed in (".weight", "bias"):
        renamed = "classifier." + renamed.removeprefix(".")
    return renamed, variable.T if name.endswith("/kernel") else variable


def test_the_tensors_are_those_of_hugging_faces_conversion(module, params):
    converted = dict(
        as_hugging_face_converts(name, variable)
        for name, variable in to_tensors(params, GOOGLE, module).items()
    )
    expected = to_tensors(params, HUGGINGFACE, module)
    assert set(converted) == set(expected)
    for name, tensor in expected.items():
        assert converted[name].tolist() == tensor.tolist(), name


def test_only_a_decoder_of_its_own_and_heads_of_our_own_have_no_name():
    ours = {rule.parameter for rule in GOOGLE.rules}
    assert len(ours) == len(GOOGLE.rules)
    unnamed = {rule.parameter for rule in HUGGINGFACE.rules} - ours
    assert {name for name in unnamed if not name.startswith("qa_joint/")} == {
        "mlm_head/decoder",
        "crf_transitions",
        "crf_start",
        "crf_end",
    }


@pytest.mark.parametrize(
    "name",
    [
        "bert/embeddings/word_embeddings/adam_m",  # google-research/bert, optimization.py
        "bert/encoder/layer_0/output/LayerNorm/gamma/adam_v",
        "output_bias/adam_v",
        "cls/predictions/output_bias/lamb_m",
        "bert/pooler/dense/kernel/AdamWeightDecayOptimizer",
        "bert/pooler/dense/kernel/AdamWeightDecayOptimizer_1",
        "bert/pooler/dense/kernel/Adam",
        "bert/pooler/dense/bias/Adam_1",
        "bert/pooler/dense/bias/LAMBOptimizer_1",
        "global_step",
        "bad_steps",
        "good_steps",
        "current_loss_scale",
        "beta1_power",
        "training/beta2_power",
    ],
)
def test_what_belongs_to_the_training_is_left_out(name):
    assert GOOGLE.canonical(name) is None


@pytest.mark.parametrize(
    "name",
    [*VARIABLES["pretraining"], "output_weights", "cls/squad/output_bias", "my/adam_mind"],
)
def test_what_belongs_to_the_model_keeps_its_name(name):
    assert GOOGLE.canonical(name) == name
