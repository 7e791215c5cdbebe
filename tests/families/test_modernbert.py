"""What is special in ModernBERT: the forms of its config, its gate, and layers that stay."""

import json

import jax
import numpy as np
import pytest

import bert_jax
from bert_jax.checkpoints.config_file import config_bytes, read_config
from bert_jax.errors import UserError
from bert_jax.families.family import find_family
from bert_jax.models.surgery import with_layers
from tests.checkpoints.fields.config_json import MINIMAL_CONFIGS

FIELDS = {"model_type": "modernbert", **MINIMAL_CONFIGS["modernbert"], "num_hidden_layers": 4}
OLDER = ("global_attn_every_n_layers", "global_rope_theta", "local_rope_theta")
NEWER = {
    "layer_types": ["full_attention", "sliding_attention", "sliding_attention", "full_attention"],
    "rope_parameters": {
        "full_attention": {"rope_type": "default", "rope_theta": 160000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    },
}
OF_NEWER = {key: value for key, value in FIELDS.items() if key not in OLDER} | NEWER


def read(path, fields):
    path.write_text(json.dumps(fields))
    return read_config(path)


@pytest.mark.slow
def test_a_file_of_transformers_5_is_written_with_the_keys_of_4(tmp_path):
    described = read(tmp_path / "config.json", OF_NEWER)
    assert described == read(tmp_path / "config.json", FIELDS)
    config = described.config
    assert [config.is_global(layer) for layer in range(4)] == [True, False, False, True]
    assert config.windows == (None, 4, 4, None)
    assert (config.global_rope_theta, config.local_rope_theta) == (160e3, 10e3)
    (tmp_path / "config.json").write_bytes(config_bytes(described))
    written = json.loads((tmp_path / "config.json").read_text())
    assert {key: written[key] for key in FIELDS} == FIELDS
    transformers = pytest.importorskip("transformers")
    for fields in (OF_NEWER, written):
        again = transformers.ModernBertConfig(**fields)
        assert {key: getattr(again, key) for key in NEWER} == NEWER


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"global_rope_theta": 1.0}, "global_rope_theta is 1.0; rope_parameters gives 160000.0: "),
        ({"layer_types": ["sliding_attention"] * 4}, "layer_types is .*; of num_hidden_layers, "),
        ({"layer_types": NEWER["layer_types"][:3]}, "layer_types is .*; of num_hidden_layers, ev"),
        (
            {"rope_parameters": {"full_attention": {"rope_type": "yarn"}}},
            "rope_parameters is .*; only the rope_type 'default' is supported",
        ),
        ({"rope_parameters": None}, "lacks global_rope_theta, local_rope_theta; give the whole mo"),
        ({"local_attention": None}, "lacks local_attention; give the whole modernbert config"),
        ({"num_attention_heads": 16}, "hidden_size is 16; rotary positions turn pairs of values"),
    ],
)
def test_what_a_file_contradicts_or_lacks_is_an_error(tmp_path, changes, message):
    with pytest.raises(UserError, match=f"config.json:? {message}"):
        read(tmp_path / "config.json", OF_NEWER | changes)


def test_layers_that_stay_keep_their_kinds(tmp_path):
    config = read(tmp_path / "config.json", FIELDS | {"num_hidden_layers": 9}).config
    kept = {
        layers: with_layers(config, layers)[0].global_attn_every_n_layers
        for layers in ((0, 3, 6), (0, 1, 3, 4), (0, 1, 2, 3), (0, 2))
    }
    assert kept == {(0, 3, 6): 1, (0, 1, 3, 4): 2, (0, 1, 2, 3): 3, (0, 2): 2}
    for layers in ((3, 4), (1, 3), (0, 3, 4)):
        with pytest.raises(UserError, match=r"model\.keep_layers is .*; keep the first layer, and"):
            with_layers(config, layers)


@pytest.mark.slow
def test_the_first_half_of_the_gate_is_activated(tmp_path):
    """With the halves swapped the model computes something else."""
    from tests.families.test_parity_of_families import last_states, save_model

    family = find_family("modernbert")
    reference = save_model("modernbert", "ModernBertModel", family, tmp_path)
    model = bert_jax.load(tmp_path)
    ids = np.arange(5, 35)[None]
    expected = last_states(reference, ids, np.ones_like(ids))

    @jax.jit
    def distance(params):
        states = model.module.apply({"params": params}, ids).last_hidden_state
        return abs(states - expected).max()

    assert distance(model.params) < 2e-5
    layers = model.params["encoder"]["layers"]
    swapped = {"gate": layers["gated_intermediate"], "gated_intermediate": layers["gate"]}
    encoder = {**model.params["encoder"], "layers": layers | swapped}
    assert distance({**model.params, "encoder": encoder}) > 1e-2
