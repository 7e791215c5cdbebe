"""GTE in the form of its published files: their keys, their names, and stretched positions."""

import json

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import bert_jax
from bert_jax.checkpoints.config_file import config_bytes, read_config
from bert_jax.errors import UserError
from bert_jax.families.family import find_family
from bert_jax.models.config import EncoderConfig
from bert_jax.models.rotary_positions import rotations
from tests.checkpoints.fields.config_json import MINIMAL_CONFIGS

SCALING = {"type": "ntk", "factor": 8.0}
PUBLISHED = {
    "model_type": "new",
    "architectures": ["NewForSequenceClassification"],
    "auto_map": {"AutoModel": "Alibaba-NLP/new-impl--modeling.NewModel"},
    **MINIMAL_CONFIGS["new"],
    "rope_scaling": SCALING,
    "layer_norm_type": "layer_norm",
    "logn_attention_scale": False,
    "logn_attention_clip1": False,
    "pack_qkv": True,
    "unpad_inputs": False,
    "use_memory_efficient_attention": False,
}


def read(path, fields):
    path.write_text(json.dumps(fields))
    return read_config(path)


def test_a_published_config_there_and_back(tmp_path):
    described = read(tmp_path / "config.json", PUBLISHED)
    assert (described.head, described.config.rope_factor) == ("classification", 8)
    written = json.loads(config_bytes(described))
    assert {key: written[key] for key in PUBLISHED} == PUBLISHED


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"rope_scaling": {"type": "linear", "factor": 2.0}},
            "rope_scaling is .*; only {'type",
        ),
        ({"rope_scaling": SCALING | {"mixed_b": 0.5}}, "rope_scaling is .*; only {'type"),
        (
            {"rope_scaling": {"type": "ntk", "factor": 0.5}},
            "rope_scaling is 0.5; it must be at le",
        ),
        ({"rope_theta": None}, "lacks rope_theta; give the whole new config"),
        ({"pack_qkv": False}, "pack_qkv is False; only True is supported"),
        ({"type_vocab_size": None}, "lacks type_vocab_size; give the whole new config"),
    ],
)
def test_what_a_file_lacks_or_no_model_computes_is_an_error(tmp_path, changes, message):
    with pytest.raises(UserError, match=message):
        read(tmp_path / "config.json", PUBLISHED | changes)


def test_stretched_positions_by_hand():
    """H 4, base 4, s 16: angles 64^0 / 4 and 64^(-1/2) / 4 of position 1."""
    config = EncoderConfig(
        hidden_size=8,
        num_attention_heads=2,
        position_kind="rotary",
        global_rope_theta=4.0,
        rope_factor=16.0,
    )
    turns = np.asarray(rotations(config, np.array([[0, 1]])))[0, 0]  # cosines and sines, TJ
    np.testing.assert_allclose(turns[0], np.cos([[0, 0], [1 / 4, 1 / 32]]), atol=1e-7)
    np.testing.assert_allclose(turns[1], np.sin([[0, 0], [1 / 4, 1 / 32]]), atol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("types", [0, 1])
def test_published_files_with_stretched_positions(tmp_path, types):
    """Against the class of transformers, which has no such positions: it is given the angles."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from tests.families.test_parity_of_families import FIELDS, save_model

    source, directory = tmp_path / "source", tmp_path / "new"
    changed = FIELDS["gte"] | {"type_vocab_size": types}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(FIELDS, "gte", changed)
        class_name = "GteForSequenceClassification"
        reference = save_model("gte", class_name, find_family("gte"), source)
    source.rename(directory)
    fields = json.loads((directory / "config.json").read_text())
    rope = fields.pop("rope_parameters")
    fields |= {key: PUBLISHED[key] for key in PUBLISHED if key not in MINIMAL_CONFIGS["bert"]}
    (directory / "config.json").write_text(json.dumps(fields | {"rope_theta": rope["rope_theta"]}))
    tensors = load_file(directory / "model.safetensors")
    tensors = {f"new.{name}".replace("new.gte.", "new."): each for name, each in tensors.items()}
    tensors = {name.replace("new.classifier", "classifier"): t for name, t in tensors.items()}
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})

    width, base, factor = 6, rope["rope_theta"], SCALING["factor"]
    angles = [1 / (base * factor) ** (2 * j / width) / factor ** (2 / width) for j in range(3)]
    reference.gte.rotary_emb.inv_freq.copy_(torch.tensor(angles))
    ids = np.random.default_rng(0).integers(5, 53, (3, 30))
    mask = np.ones_like(ids)
    mask[1, 20:] = mask[2, 5:9] = 0
    with torch.no_grad():
        output = reference(torch.tensor(ids), attention_mask=torch.tensor(mask))

    model = bert_jax.load(directory)
    assert model.description.class_name == "NewForSequenceClassification"
    logits = jax.jit(model.module.apply)({"params": model.params}, ids, None, mask)
    np.testing.assert_allclose(logits, output.logits, atol=1e-4)
    model.save(tmp_path / "again")
    again = load_file(tmp_path / "again" / "model.safetensors")
    assert again.keys() == tensors.keys()
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(again[name], tensor, err_msg=name, strict=True)
