"""The families that generate beside transformers: logits, gradients, and files in both ways."""

import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from bert_jax.checkpoints.config_file import config_bytes
from bert_jax.checkpoints.model_directory import _tensors, load_description, load_params
from bert_jax.checkpoints.parameters import to_tensors
from bert_jax.models.execution import Execution
from bert_jax.parity.compare import compare
from bert_jax.tokenization import BertSwitches, WordPieceTokenizer
from bert_jax.tokenization.description import BRACKETED

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

MARIAN = {
    "vocab_size": 60,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 40,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 64,
    "pad_token_id": 59,
    "decoder_start_token_id": 59,
}
T5 = {"vocab_size": 60, "d_model": 32, "d_kv": 6, "d_ff": 40, "num_layers": 2, "num_heads": 4}
GPT = {"vocab_size": 60, "n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 4}
MODELS = {
    "marian": ("Marian", "MarianMTModel", MARIAN | {"eos_token_id": 0}),
    "marian_relu": (
        "Marian",
        "MarianMTModel",
        MARIAN | {"scale_embedding": True, "activation_function": "relu"},
    ),
    "bart": ("Bart", "BartForConditionalGeneration", MARIAN),
    "t5": ("T5", "T5ForConditionalGeneration", T5 | {"num_decoder_layers": 3}),
    "t5_1.1": ("T5", "T5ForConditionalGeneration", T5 | {"feed_forward_proj": "gated-gelu"}),
    "gpt2": ("GPT2", "GPT2LMHeadModel", GPT),
    "gpt": ("OpenAIGPT", "OpenAIGPTLMHeadModel", GPT),
}
IDS = np.random.default_rng(0).integers(3, 50, (3, 9)).astype(np.int32)
MASK = np.ones((3, 9), np.int32)
MASK[1, 6:] = 0
OUTPUTS = np.random.default_rng(1).integers(3, 50, (3, 7)).astype(np.int32)
WEIGHTS = np.random.default_rng(2).normal(size=(3, 9, 60)).astype(np.float32) * MASK[..., None]


@pytest.fixture(params=MODELS)
def reference(request, tmp_path):
    """A model of transformers with random parameters, and its directory."""
    prefix, class_name, fields = MODELS[request.param]
    torch.manual_seed(0)
    config = getattr(transformers, f"{prefix}Config")(**fields)
    if request.param == "t5_1.1":
        config.scale_decoder_outputs = False
    model = getattr(transformers, class_name)(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not (prefix == "Marian" and "embed_positions" in name):  # sinusoids
                parameter.add_(torch.randn_like(parameter) * 0.1)
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias.normal_()
    model.save_pretrained(tmp_path / "model")
    return model, tmp_path / "model"


def test_logits_gradients_and_files(reference, tmp_path):
    model, directory = reference
    description = load_description(directory)
    module = description.make_module(Execution())
    params, report = load_params(directory, description, module)
    assert report.complete
    is_causal = description.head == "causal_lm"
    outputs = {} if is_causal else {"decoder_input_ids": OUTPUTS}
    weights = WEIGHTS if is_causal else WEIGHTS[:, :7] + 1

    @jax.jit
    @jax.value_and_grad
    def loss(params):
        logits = module.apply({"params": params}, IDS, attention_mask=MASK, **outputs)
        return jnp.mean(logits * weights)

    named = {name: torch.from_numpy(ids.astype(np.int64)) for name, ids in outputs.items()}
    arrays = {"input_ids": IDS, "attention_mask": MASK}
    logits = model(**{k: torch.from_numpy(v.astype(np.int64)) for k, v in arrays.items()}, **named)
    logits = logits.logits
    expected = (logits * torch.from_numpy(weights)).mean()
    expected.backward()
    actual = module.apply({"params": params}, IDS, attention_mask=MASK, **outputs)
    shown = MASK.astype(bool) if is_causal else slice(None)
    np.testing.assert_allclose(actual[shown], logits.detach().numpy()[shown], atol=1e-4)

    value, gradients = loss(params)
    np.testing.assert_allclose(value, expected.item(), atol=1e-5)
    names = description.family.huggingface
    compared = 0
    least = max(abs(p.grad).max().item() for p in model.parameters() if p.grad is not None) / 100
    tensors = to_tensors(gradients, names, module)
    for name, parameter in model.named_parameters():
        canonical = names.canonical(name)
        if canonical in tensors and parameter.grad is not None:
            scale = max(abs(parameter.grad.numpy()).max(), least)  # biases of keys have 0
            actual_gradient = tensors[canonical].reshape(parameter.shape)
            np.testing.assert_allclose(
                actual_gradient / scale, parameter.grad.numpy() / scale, atol=1e-4, err_msg=name
            )
            compared += 1
    assert compared >= len(tensors) - 1  # final_logits_bias is no parameter in transformers

    # What is written is what was read.
    stored = load_file(directory / "model.safetensors")
    written = _tensors(description, params)
    assert set(written) <= {names.canonical(name) or name for name in stored} | set(stored)
    for name, tensor in written.items():
        np.testing.assert_array_equal(tensor, stored[name])
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "config.json").write_bytes(config_bytes(description))
    first, again = (
        type(model.config).from_pretrained(path).to_dict()
        for path in (directory, tmp_path / "copy")
    )
    for fields in (first, again):
        fields.pop("dtype")
        if fields.get("n_inner", 0) in (None, 128):  # 4 D
            fields.pop("n_inner")
    assert first == {key: again[key] for key in first}


@pytest.mark.parametrize(
    ("reference", "name"),
    [
        ("bart", "model.decoder.layers.2.encoder_attn.q_proj.weight"),
        ("t5", "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"),
        ("gpt2", "transformer.h.1.attn.c_attn.weight"),
    ],
    indirect=["reference"],
)
def test_the_parity_verb_finds_a_changed_tensor(reference, name, tmp_path):
    _, directory = reference
    pieces = [*BRACKETED, *(f"w{number}" for number in range(55))]
    WordPieceTokenizer.from_vocabulary(pieces, BertSwitches(True, None, True)).save(directory)
    shutil.copytree(directory, tmp_path / "changed")
    tensors = load_file(directory / "model.safetensors")
    tensors[name].flat[0] += 0.5
    save_file(tensors, tmp_path / "changed" / "model.safetensors", metadata={"format": "pt"})
    report = compare(tmp_path / "changed", reference=directory)
    assert not report.agrees
    (cause,) = report.causes
    assert cause == f"other weights: {name}; the largest distance is 5.0e-01, in {name}"
