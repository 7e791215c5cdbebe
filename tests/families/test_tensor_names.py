"""The names of tensors in files: by hand, complete, and the same tensors in every format."""

import dataclasses
import re
import types

import jax
import numpy as np
import pytest
from flax.traverse_util import flatten_dict
from safetensors.numpy import save_file

from bert_jax.checkpoints.parameters import (
    WORD_EMBEDDINGS,
    decoder_tensor,
    fill,
    locate,
    read_parameters,
    tensor_shape,
    to_tensor,
    to_tensors,
)
from bert_jax.checkpoints.tensors import open_tensors
from bert_jax.families import albert
from bert_jax.families.bert import FAMILY, GOOGLE, HUGGINGFACE
from bert_jax.families.family import family_names, find_family
from bert_jax.models.config import EncoderConfig
from bert_jax.models.encoder import abstract_params
from bert_jax.models.head import find_head, with_fields
from bert_jax.sharding.mesh import one_device_mesh
from tests.random_params import random_params

# L 2, D 6, N 3, H 2, F 5, V 7, C 4: all different, so that no wrong transposition fits by chance.
CONFIG = EncoderConfig(
    vocab_size=7,
    hidden_size=6,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=5,
    max_position_embeddings=9,
    num_labels=4,
)
RULES = {rule.parameter: rule for rule in HUGGINGFACE.rules}


# --- Google's variables, as TensorFlow declares them ---------------------------------------------


def dense(scope, rows, columns):
    return {f"{scope}/kernel": (rows, columns), f"{scope}/bias": (columns,)}


def norm(scope, width):
    return {f"{scope}/gamma": (width,), f"{scope}/beta": (width,)}


def head(scope, outputs):
    return {f"{scope}output_weights": (outputs, 6), f"{scope}output_bias": (outputs,)}


def embeddings(words, width):
    return {
        "bert/embeddings/word_embeddings": (words, width),
        "bert/embeddings/position_embeddings": (9, width),
        "bert/embeddings/token_type_embeddings": (2, width),
        **norm("bert/embeddings/LayerNorm", width),
    }


def words(size, width):
    return {
        **dense("cls/predictions/transform/dense", 6, width),
        **norm("cls/predictions/transform/LayerNorm", width),
        "cls/predictions/output_bias": (size,),
    }


# google-research/bert, modeling.py.
ENCODER = embeddings(7, 6)
for layer in ("bert/encoder/layer_0", "bert/encoder/layer_1"):
    ENCODER |= {
        **dense(f"{layer}/attention/self/query", 6, 6),
        **dense(f"{layer}/attention/self/key", 6, 6),
        **dense(f"{layer}/attention/self/value", 6, 6),
        **dense(f"{layer}/attention/output/dense", 6, 6),
        **norm(f"{layer}/attention/output/LayerNorm", 6),
        **dense(f"{layer}/intermediate/dense", 6, 5),
        **dense(f"{layer}/output/dense", 5, 6),
        **norm(f"{layer}/output/LayerNorm", 6),
    }
POOLER = dense("bert/pooler/dense", 6, 6)
NEXT_SENTENCE = head("cls/seq_relationship/", 2)
VARIABLES = {
    "encoder": ENCODER | POOLER,
    "pretraining": ENCODER | POOLER | words(7, 6) | NEXT_SENTENCE,
    "masked_lm": ENCODER | words(7, 6),
    "next_sentence": ENCODER | POOLER | NEXT_SENTENCE,
    "classification": ENCODER | POOLER | head("", 4),
    "tagging": ENCODER | head("", 4),
    "multiple_choice": ENCODER | POOLER | head("", 1),
    "question_answering": ENCODER | head("cls/squad/", 2),
}


def as_hugging_face_converts(name: str, variable: np.ndarray) -> tuple[str, np.ndarray]:
    """A variable of the released models after their conversion for PyTorch.

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


@pytest.mark.parametrize("name", VARIABLES)
def test_names_and_shapes_by_hand_and_hugging_faces_conversion(name):
    module = find_head(name).make(CONFIG)
    params = random_params(module, all_differ=True)
    variables = to_tensors(params, GOOGLE, module)
    assert {key: variable.shape for key, variable in variables.items()} == VARIABLES[name]
    assert all(variable.flags.c_contiguous for variable in variables.values())
    converted = dict(as_hugging_face_converts(*item) for item in variables.items())
    tensors = to_tensors(params, HUGGINGFACE, module)
    assert set(converted) == set(tensors)
    for key, tensor in tensors.items():
        assert converted[key].tolist() == tensor.tolist(), key


def test_albert_by_hand():
    fields = {"vocab_size": 40, "embedding_size": 4, "num_hidden_layers": 4, "num_hidden_groups": 2}
    config = with_fields(CONFIG, fields)
    module = find_head("pretraining").make(config)
    expected = {
        **embeddings(40, 4),
        **dense("bert/encoder/embedding_hidden_mapping_in", 4, 6),
        **POOLER,
        **words(40, 4),
        **NEXT_SENTENCE,
    }
    for number in range(2):
        group = f"bert/encoder/transformer/group_{number}/inner_group_0"
        expected |= {
            **dense(f"{group}/attention_1/self/query", 6, 6),
            **dense(f"{group}/attention_1/self/key", 6, 6),
            **dense(f"{group}/attention_1/self/value", 6, 6),
            **dense(f"{group}/attention_1/output/dense", 6, 6),
            **dense(f"{group}/ffn_1/intermediate/dense", 6, 5),
            **dense(f"{group}/ffn_1/intermediate/output/dense", 5, 6),
            **norm(f"{group}/LayerNorm", 6),
            **norm(f"{group}/LayerNorm_1", 6),
        }
    params = random_params(module, all_differ=True)
    variables = to_tensors(params, albert.GOOGLE, module)
    assert {name: variable.shape for name, variable in variables.items()} == expected
    # google-research/albert, modeling.py, attention_ffn_block: TensorFlow numbers the second one.
    layers = params["bert"]["encoder"]["layers"]
    for norm_of, number in (("attention_norm", ""), ("output_norm", "_1")):
        gamma = variables[f"{group}/LayerNorm{number}/gamma"]
        assert gamma.tolist() == layers[norm_of]["scale"][1].tolist()


@pytest.mark.parametrize(
    "name",
    [
        "bert/embeddings/word_embeddings/adam_m",  # google-research/bert, optimization.py
        "bert/encoder/layer_0/output/LayerNorm/gamma/adam_v",
        "cls/predictions/output_bias/lamb_m",
        "bert/pooler/dense/kernel/AdamWeightDecayOptimizer",
        "bert/pooler/dense/kernel/AdamWeightDecayOptimizer_1",
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
def test_variables_of_an_optimizer_are_left_out(name):
    assert GOOGLE.canonical(name) is None


@pytest.mark.parametrize("name", [*VARIABLES["pretraining"], "output_weights", "my/adam_mind"])
def test_variables_of_a_model_keep_their_names(name):
    assert GOOGLE.canonical(name) == name


# --- Hugging Face's tensors ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def shapes():
    """The shape of every parameter of any of the models."""
    shapes = {}
    config = with_fields(
        CONFIG, {"tie_word_embeddings": False, "use_crf": True, "layer_mix": "softmax"}
    )
    joint = with_fields(config, {"qa_head": "joint"})
    for name, of_head in [
        *((name, config) for name in FAMILY.class_names),
        ("question_answering", joint),
    ]:
        params = abstract_params(find_head(name).make(of_head))
        tree = {"bert": params} if name == "encoder" else params
        shapes |= {key: leaf.shape for key, leaf in flatten_dict(tree, sep="/").items()}
    return shapes


def test_every_parameter_has_one_rule_and_every_rule_a_parameter(shapes):
    assert len(RULES) == len(HUGGINGFACE.rules) == len(shapes)
    assert set(RULES) == set(shapes)


def test_names_and_shapes_that_google_does_not_have(shapes):
    named = {rule.parameter for rule in GOOGLE.rules}
    assert len(named) == len(GOOGLE.rules)
    expected = {
        "mlm_head/decoder": ("cls.predictions.decoder.weight", (7, 6)),
        "crf_transitions": ("crf.transitions", (4, 4)),
        "crf_start": ("crf.start_transitions", (4,)),
        "crf_end": ("crf.end_transitions", (4,)),
        "layer_mix/weights": ("layer_mix.weights", (CONFIG.num_hidden_layers + 1,)),
        "layer_mix/scale": ("layer_mix.scale", (1,)),
    }
    for part, shape in {
        "start": (1, 6),
        "end_hidden": (512, 12),
        "end": (1, 512),
        "no_answer_hidden": (512, 12),
        "no_answer": (1, 512),
    }.items():
        expected[f"qa_joint/{part}/kernel"] = (f"qa_joint.{part}.weight", shape)
        expected[f"qa_joint/{part}/bias"] = (f"qa_joint.{part}.bias", shape[:1])
    assert expected == {
        name: (rule.tensor, tensor_shape(rule, shapes[name]))
        for name, rule in RULES.items()
        if name not in named
    }


def test_there_and_back_to_the_bit(shapes):
    generator = np.random.default_rng(0)
    for name, shape in shapes.items():
        rule, value = RULES[name], generator.normal(size=shape).astype(np.float32)
        layers = value if rule.stacked else [value]
        for layer in layers:
            tensor, back = to_tensor(rule, layer), np.empty(layer.shape, np.float32)
            assert tensor.shape == tensor_shape(rule, layer.shape)
            assert tensor.flags.c_contiguous
            fill(rule, back, tensor)
            assert back.tobytes() == layer.tobytes(), name


@pytest.mark.parametrize("transposed", [True, False])
def test_one_tensor_of_queries_keys_and_values(tmp_path, transposed):
    """As in GPT-2, where kernels are [in, out], and in ModernBERT."""
    parts = {name: (number, 3) for number, name in enumerate(("query", "key", "value"))}
    rules = {}
    for name, rule in RULES.items():
        match = re.fullmatch("(bert/encoder/layers/attention/)(query|key|value)(/.*)", name)
        if match:
            tensor, is_kernel = rule.tensor.replace(match[2], "qkv"), name.endswith("kernel")
            rule = rule._replace(
                tensor=tensor, part=parts[match[2]], transposed=transposed and is_kernel
            )
        rules[name] = rule
    names = dataclasses.replace(HUGGINGFACE, rules=tuple(rules.values()))
    module = find_head("encoder").make(CONFIG)
    params = random_params(module)
    apart, joined = (to_tensors(params, each, module) for each in (HUGGINGFACE, names))
    for layer in ("0", "1"):
        scope = f"bert.encoder.layer.{layer}.attention.self."
        three = [apart[f"{scope}{name}.weight"] for name in parts]
        weight = np.concatenate(three)  # [3 D, D]
        assert (
            joined[f"{scope}qkv.weight"].tolist() == (weight if transposed else weight.T).tolist()
        )
        assert joined[f"{scope}qkv.bias"].shape == (18,)
    save_file(joined, tmp_path / "model.safetensors")
    with open_tensors(tmp_path) as file:
        read, report = read_parameters(file, names, module, mesh=one_device_mesh())
    assert report.complete
    assert flatten_dict(jax.tree.map(np.ndarray.tobytes, jax.device_get(read))) == flatten_dict(
        jax.tree.map(np.ndarray.tobytes, jax.device_get(params))
    )


def test_kernels_are_transposed_and_heads_flattened_by_hand():
    # D 2, N 2, H 1. The query's kernel is [in, head, width]: row 0 goes to heads 1 and 2.
    query = to_tensor(
        RULES["bert/encoder/layers/attention/query/kernel"], np.float32([[[1], [2]], [[3], [4]]])
    )
    assert query.tolist() == [[1, 3], [2, 4]]
    # The output's kernel is [head, width, out].
    output = to_tensor(
        RULES["bert/encoder/layers/attention/output/kernel"], np.float32([[[1, 2]], [[3, 4]]])
    )
    assert output.tolist() == [[1, 3], [2, 4]]
    table = np.float32([[1, 2], [3, 4], [5, 6]])
    assert to_tensor(RULES[WORD_EMBEDDINGS], table).tolist() == table.tolist()


@pytest.mark.parametrize(
    ("spelling", "canonical"),
    [
        ("bert.pooler.dense.weight", "bert.pooler.dense.weight"),
        ("pooler.dense.weight", "bert.pooler.dense.weight"),
        ("embeddings.LayerNorm.gamma", "bert.embeddings.LayerNorm.weight"),
        (
            "bert.encoder.layer.11.output.LayerNorm.beta",
            "bert.encoder.layer.11.output.LayerNorm.bias",
        ),
        ("cls.predictions.decoder.bias", "cls.predictions.bias"),
        ("classifier.weight", "classifier.weight"),
        ("my_head.gamma", "my_head.gamma"),
        ("bert.embeddings.position_ids", None),
        ("embeddings.token_type_ids", None),
    ],
)
def test_spellings(spelling, canonical):
    assert HUGGINGFACE.canonical(spelling) == canonical


@pytest.mark.parametrize("name", family_names())
def test_a_repeated_prefix_is_ignored(name):
    """As of a wrapper whose attribute has the name of the prefix: "bert.bert." and "bert.cls."."""
    names = find_family(name).huggingface
    prefix = names.rules[0].tensor.partition(".")[0]
    for rule in names.rules:
        tensor = rule.tensor.format(layer=1)
        assert names.canonical(tensor) == names.canonical(f"{prefix}.{tensor}") == tensor
        assert names.canonical(f"{prefix}.{prefix}.{tensor}") == tensor


@pytest.mark.parametrize("name", family_names())
def test_a_tied_table_has_either_name(name):
    config, names = EncoderConfig(), find_family(name).huggingface
    table, decoder = names.tensor_of(WORD_EMBEDDINGS), decoder_tensor(names)
    for tensor in filter(None, (table, decoder)):
        file = types.SimpleNamespace(tensors=[tensor])
        assert locate(file, names, config) == {table: tensor}
