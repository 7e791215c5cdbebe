"""DeBERTa: buckets and scores of positions by hand, its forms against transformers, its files."""

import itertools
import json
import math

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import bert_jax
from bert_jax.checkpoints.config_file import config_bytes, read_config
from bert_jax.errors import UserError
from bert_jax.families.family import find_family
from bert_jax.models.config import EncoderConfig
from bert_jax.models.disentangled_attention import PositionScores, bucket_of, rows_of_distances
from bert_jax.models.execution import Execution
from bert_jax.models.surgery import extend_positions
from bert_jax.models.transformer_layer import RequestedOutputs
from bert_jax.tokenization.wordpiece import BertSwitches, WordPieceTokenizer
from tests.checkpoints.fields.config_json import MINIMAL_CONFIGS

FIELDS = {"model_type": "deberta-v2", **MINIMAL_CONFIGS["deberta-v2"]}
TOKENIZER = WordPieceTokenizer.from_vocabulary(
    ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"], BertSwitches(True, None, True)
)


def test_buckets_of_distances():
    """Of 8 buckets half are exact: the others reach to 6.3, 10.1 and 16 of 17 distances."""
    distances = np.arange(18)
    buckets = [0, 1, 2, 3, 4, 5, 5, 6, 6, 6, 6, 7, 7, 7, 7, 7, 7, 8]
    assert bucket_of(distances, 8, 17).tolist() == buckets
    assert bucket_of(-distances, 8, 17).tolist() == [-bucket for bucket in buckets]
    published = bucket_of(np.array([127, 128, 129, 130, 510, 511, 512]), 256, 512)
    assert published.tolist() == [127, 128, 129, 130, 255, 255, 256]


def test_rows_of_the_table():
    """16 rows, of which the first and the last have all longer distances, too."""
    config = EncoderConfig(
        max_position_embeddings=5, relative_attention=True, pos_att_type="c2p", position_buckets=-1
    )
    rows = rows_of_distances(config, 8)
    assert rows.tolist() == [0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 9]


@pytest.mark.parametrize("kinds", ["c2p", "p2c", "c2p|p2c"])
def test_scores_are_the_sums_of_the_paper(kinds):
    """Of 6 tokens and 2 heads, with loops over all pairs."""
    config = EncoderConfig(
        hidden_size=6,
        num_attention_heads=2,
        relative_attention=True,
        pos_att_type=kinds,
        share_att_key=False,
        position_buckets=4,
        max_relative_positions=5,
    )
    generator = np.random.default_rng(0)
    query, key = generator.normal(size=(2, 1, 2, 6, 3)).astype(np.float32)
    table = generator.normal(size=(8, 6)).astype(np.float32)
    layers = {
        name: {"kernel": generator.normal(size=(6, 2, 3)), "bias": generator.normal(size=(2, 3))}
        for name in ("query", "key")
    }
    module = PositionScores(config, Execution())
    scores = module.apply({"params": layers}, query, key, table, {}, True)
    # Buckets of the distances 0 to 5 are 0, 1, 2, 3, 3 and 4, for which there is no row.
    row = dict(zip(range(-5, 6), (0, 1, 1, 2, 3, 4, 5, 6, 7, 7, 7), strict=True))
    expected = np.zeros((1, 2, 6, 6))
    for head, t, s in itertools.product(range(2), range(6), range(6)):
        position = {
            name: table[row[t - s]] @ layer["kernel"][:, head] + layer["bias"][head]
            for name, layer in layers.items()
        }
        c2p, p2c = query[0, head, t] @ position["key"], key[0, head, s] @ position["query"]
        expected[0, head, t, s] = c2p * ("c2p" in kinds) + p2c * ("p2c" in kinds)
    terms = 3 if "|" in kinds else 2
    np.testing.assert_allclose(scores, expected / math.sqrt(terms * 3), atol=1e-5)


def read(path, fields):
    path.write_text(json.dumps(fields))
    return read_config(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"relative_attention": None}, "lacks relative_attention; give the whole deberta-v2 conf"),
        ({"position_biased_input": None}, "lacks position_biased_input"),
        ({"pos_att_type": None}, "lacks pos_att_type"),
        ({"pos_att_type": "none"}, "lacks pos_att_type"),
        ({"pos_att_type": "c2p|p2p"}, "pos_att_type is 'c2p|p2p'; known are"),
        ({"share_att_key": None}, "lacks share_att_key"),
        ({"position_buckets": 67}, "position_buckets is 67; it must be from 2 to 65, for 34 dist"),
        ({"conv_kernel_size": 2}, "conv_kernel_size is 2; it must be odd"),
        ({"conv_kernel_size": 3, "conv_act": None}, "conv_act is None; give the activation of th"),
        ({"pooler_hidden_size": 8}, "pooler_hidden_size is 8; only hidden_size, 16, is supported"),
        ({"conv_groups": 2}, "conv_groups is 2; only 1 is supported"),
    ],
)
def test_what_a_file_lacks_or_cannot_mean_is_an_error(tmp_path, changes, message):
    with pytest.raises(UserError) as error:
        read(tmp_path / "config.json", FIELDS | changes)
    assert message in str(error.value)


def test_without_relative_positions_a_file_needs_no_more_of_their_fields(tmp_path):
    fields = FIELDS | {"relative_attention": False}
    for key in ("pos_att_type", "share_att_key", "position_buckets", "norm_rel_ebd"):
        del fields[key]
    config = read(tmp_path / "config.json", fields).config
    assert (config.pos_att_type, config.position_buckets) == ("", -1)


def test_the_widths_and_the_form_of_the_head_are_written(tmp_path):
    """Transformers reads null as a width, and takes another head where `legacy` is missing."""
    described = read(tmp_path / "config.json", FIELDS)
    written = json.loads(config_bytes(described))
    assert (written["embedding_size"], written["attention_head_size"]) == (16, 8)
    assert written["legacy"] is True
    assert read(tmp_path / "config.json", written).config == described.config
    other = read(tmp_path / "config.json", FIELDS | {"legacy": False})
    assert json.loads(config_bytes(other))["legacy"] is False
    names = [
        each.family.huggingface.tensor_of("mlm_head/dense/bias") for each in (described, other)
    ]
    assert names == ["cls.predictions.transform.dense.bias", "lm_predictions.lm_head.dense.bias"]


def test_longer_texts_keep_the_buckets(tmp_path):
    config = read(tmp_path / "config.json", FIELDS).config
    _, longer = extend_positions({}, config, 100)
    assert (longer.max_length, longer.distances) == (100, config.distances)


# Texts of 40 tokens are longer than 8 buckets, and than 17 and 33 distances.
BASE = {
    "vocab_size": 53,
    "hidden_size": 24,
    "num_hidden_layers": 4,
    "num_attention_heads": 3,
    "intermediate_size": 22,
    "max_position_embeddings": 41,
    "layer_norm_eps": 1e-7,
    "relative_attention": True,
    "position_biased_input": False,
    "pos_att_type": "p2c|c2p",
    "share_att_key": True,
    "position_buckets": 8,
    "norm_rel_ebd": "layer_norm",
}
FORMS = {
    "v3": {},
    "v2": {"conv_kernel_size": 3, "conv_act": "gelu"},
    "tanh, odd buckets": {"conv_kernel_size": 1, "conv_act": "tanh", "position_buckets": 7},
    "c2p": {"pos_att_type": ["c2p"], "share_att_key": False, "norm_rel_ebd": "none"},
    "p2c": {"pos_att_type": ["p2c"], "share_att_key": False},
    "all distances": {"position_buckets": -1, "max_relative_positions": 17},
    "no positions": {"relative_attention": False, "pos_att_type": None, "norm_rel_ebd": "none"},
    "positions, types, narrow": {
        "position_biased_input": True,
        "type_vocab_size": 2,
        "embedding_size": 10,
        "max_relative_positions": 33,
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_hidden_states_and_weights_are_those_of_transformers(form, tmp_path):
    """At all positions: of padding, too, left, inside and right, and in rows of it alone."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.DebertaV2Config(**BASE | FORMS[form])
    reference = transformers.DebertaV2ForMaskedLM(config).eval()
    with torch.no_grad():
        for parameter in reference.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    reference.save_pretrained(tmp_path)
    TOKENIZER.save(tmp_path)
    model = bert_jax.load(tmp_path)
    generator = np.random.default_rng(0)
    ids, types = generator.integers(5, 53, (5, 40)), generator.integers(0, 2, (5, 40))
    mask = np.ones_like(ids)
    mask[1, 30:] = mask[2, 5:9] = mask[2, 37:] = mask[3, :6] = mask[4] = 0
    types = types if config.type_vocab_size else np.zeros_like(types)

    outputs = RequestedOutputs(hidden_states=True, attentions=True)
    logits, encoded = model.module.apply(
        {"params": model.params}, ids, types, mask, encoder_outputs=outputs
    )
    with torch.no_grad():
        expected = reference(
            torch.tensor(ids),
            token_type_ids=torch.tensor(types),
            attention_mask=torch.tensor(mask),
            output_hidden_states=True,
            output_attentions=True,
        )
    np.testing.assert_allclose(logits, expected.logits, atol=1e-4)
    for ours, theirs in zip(encoded.hidden_states, expected.hidden_states, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=2e-5)
    for ours, theirs in zip(encoded.attentions, expected.attentions, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=2e-5)
    model.save(tmp_path / "again")
    tensors, again = (
        load_file(directory / "model.safetensors") for directory in (tmp_path, tmp_path / "again")
    )
    assert tensors.keys() == again.keys()
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(again[name], tensor, err_msg=name, strict=True)


@pytest.mark.slow
def test_buckets_are_those_of_transformers():
    torch = pytest.importorskip("torch")
    models = pytest.importorskip("transformers.models.deberta_v2.modeling_deberta_v2")
    for buckets in (2, 3, 5, 8, 9, 16, 32, 33, 64, 256):
        for count in (12, 16, 17, 33, 37, 65, 129, 512, 513, 1024):
            if buckets >= 2 * count - 2:
                continue
            distances = np.arange(-2048, 2049)
            expected = models.make_log_bucket_position(torch.tensor(distances), buckets, count)
            # Beyond the longest distance only the row at the end of the table counts.
            ours, theirs = (
                np.clip(each, -buckets, buckets - 1)
                for each in (bucket_of(distances, buckets, count), expected.long().numpy())
            )
            np.testing.assert_array_equal(ours, theirs, err_msg=f"{buckets}, {count}")


@pytest.mark.slow
def test_a_published_file_has_no_head_of_masked_words(tmp_path):
    """Version 3's names neither class nor head, and has tensors of its pre-training."""
    transformers = pytest.importorskip("transformers")
    config = transformers.DebertaV2Config(**BASE)
    transformers.DebertaV2Model(config).save_pretrained(tmp_path)
    fields = json.loads((tmp_path / "config.json").read_text())
    del fields["architectures"], fields["legacy"]
    (tmp_path / "config.json").write_text(json.dumps(fields))
    tensors = {f"deberta.{k}": v for k, v in load_file(tmp_path / "model.safetensors").items()}
    further = ["lm_predictions.lm_head.bias", "mask_predictions.classifier.weight"]
    tensors |= {name: np.zeros(53, np.float32) for name in further}
    save_file(tensors, tmp_path / "model.safetensors")
    TOKENIZER.save(tmp_path)
    model = bert_jax.load(tmp_path)
    assert model.description.head == "encoder"
    assert model.report.unexpected_keys == tuple(further)


def test_sizes_of_a_new_model():
    family = find_family("deberta-v2")
    config = family.new_config("xsmall")
    assert (config.hidden_size, config.num_attention_heads, config.head_dim) == (384, 6, 64)
    assert math.isclose(config.attention_scale, 1 / math.sqrt(3 * 64))
    assert config.position_rows is None
