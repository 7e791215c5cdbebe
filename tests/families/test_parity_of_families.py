"""Every head of every family against its class of transformers: weights, numbers, gradients."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file

import bert_jax
from bert_jax.families.family import family_names, find_family
from bert_jax.parity.compare import compare
from bert_jax.tokenization.wordpiece import BertSwitches, WordPieceTokenizer

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

# The id of [PAD] is RoBERTa's.
PIECES = ["[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]", *(f"w{number}" for number in range(48))]

# Odd sizes: no two of them are the same.
SIZES = {
    "vocab_size": 53,
    "hidden_size": 18,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "intermediate_size": 22,
    "max_position_embeddings": 37,
    "pad_token_id": 1,
}
FIELDS = {
    "albert": {"embedding_size": 10, "num_hidden_layers": 4, "num_hidden_groups": 2},
    "electra": {"embedding_size": 10},
    "mobilebert": {
        "embedding_size": 10,
        "intra_bottleneck_size": 6,
        "num_feedforward_networks": 3,
        "classifier_activation": False,
    },
    "gte": {"num_hidden_layers": 4, "global_rope_theta": 40.0, "type_vocab_size": 2},
    # Distances beyond the exact buckets, and beyond the last one.
    "mpnet": {"num_hidden_layers": 4, "layer_norm_eps": 1e-5, "max_position_embeddings": 152},
    "nomic_bert": {"num_hidden_layers": 4, "global_rope_theta": 40.0},
    "roberta": {"type_vocab_size": 1, "layer_norm_eps": 1e-5},
}
# Windows narrower than the texts, and another base in layers with one.
FIELDS["modernbert"] = {
    "num_hidden_layers": 4,
    "layer_norm_eps": 1e-5,
    "classifier_pooling": "mean",
    "global_attn_every_n_layers": 3,
    "local_attention": 11,
    "global_rope_theta": 160.0,
    "local_rope_theta": 10.0,
}
# Its loss reads padding, whose outputs are arbitrary where it sees no word.
FIELDS["ModernBertForQuestionAnswering"] = {"local_attention": 36, "max_position_embeddings": 41}
# More distances than buckets, and texts with distances beyond the last bucket.
FIELDS["deberta_v2"] = {
    "num_hidden_layers": 4,
    "embedding_size": 10,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-7,
    "relative_attention": True,
    "position_biased_input": True,
    "pos_att_type": "p2c|c2p",
    "share_att_key": False,
    "position_buckets": 8,
    "max_relative_positions": 17,
    "norm_rel_ebd": "layer_norm",
    "conv_kernel_size": 5,
    "conv_act": "gelu",
    "classifier_dropout": 0.0,
}
FIELDS["DebertaV2ForMaskedLM"] = {"embedding_size": 18}  # as one of its two forms needs
FIELDS["longformer"] = FIELDS["roberta"] | {
    "num_hidden_layers": 4,
    "attention_window": [4, 8, 4, 8],  # those that transformers can mix
}
FIELDS["marian"] = FIELDS["bart"] = {
    "decoder_layers": 2,
    "decoder_attention_heads": 2,
    "decoder_ffn_dim": 26,
    "decoder_start_token_id": 1,
}
FIELDS["t5"] = {"attention_head_size": 4, "decoder_layers": 2, "decoder_start_token_id": 1}
FIELDS["openai_gpt"] = {"intermediate_size": 4 * 18}  # its only one
# An odd size: a part of the last patch is not read; positions are on a square, as transformers'
# interpolation needs.
FIELDS["vit"] = FIELDS["deit"] = {
    "image_size": 23,
    "patch_size": 7,
    "num_channels": 2,
    "pooler_output_size": 11,
    "pooler_act": "gelu",
    "num_labels": 5,
}
FIELDS["ViTForImageClassification"] = {"image_size": [16, 23], "patch_size": [5, 7]}
FIELDS["DeiTForImageClassification"] = {"qkv_bias": False}
FIELDS["camembert"] = FIELDS["xlm_roberta"] = FIELDS["roberta"]
OF_TEXTS = ("vocab_size", "max_position_embeddings", "pad_token_id")
# Their classes are not in transformers; tests/inference and tests of their own compare them.
OF_MODEL_CARDS = ("bert_cat", "colbert", "elmo", "gru", "lstm", "new")
CASES = [
    (name, head, class_name, family)
    for name in family_names()
    if name not in ("bert", *OF_MODEL_CARDS)
    for family in (find_family(name), *find_family(name).others)
    for head, class_name in family.class_names.items()
    # These two have RoBERTa's modules and names of tensors.
    if name not in ("camembert", "xlm_roberta") or head in ("encoder", "masked_lm")
]


def save_model(name, class_name, family, directory):
    """A random model of transformers with a tokenizer, in a directory."""
    fields = SIZES | FIELDS.get(name, {}) | FIELDS.get(class_name, {})
    keys = {family.field_names.get(field, field): value for field, value in fields.items()}
    keys |= family.own_fields
    if family.reads_images:
        keys = {key: value for key, value in keys.items() if key not in OF_TEXTS}
    model_class = getattr(transformers, class_name)
    torch.manual_seed(0)
    model = model_class(model_class.config_class(**keys)).eval()
    with torch.no_grad():  # biases and norms, too
        for parameter_name, parameter in model.named_parameters():
            if name != "marian" or "embed_positions" not in parameter_name:  # sinusoids
                parameter.add_(0.05 * torch.randn_like(parameter))
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias.normal_()
    model.save_pretrained(directory)
    if not family.reads_images:
        WordPieceTokenizer.from_vocabulary(PIECES, BertSwitches(True, None, True)).save(directory)
    return model


def last_states(model, ids, mask):
    """The last hidden states of transformers, [B, T, D]."""
    with torch.no_grad():
        output = model(
            torch.tensor(ids), attention_mask=torch.tensor(mask), output_hidden_states=True
        )
    return output.hidden_states[-1].numpy()


ENCODERS = [
    case
    for case in CASES
    if case[1] == "encoder"
    and case[0] not in ("camembert", "xlm_roberta")
    and not case[3].reads_images
]


@pytest.mark.parametrize(
    ("name", "head", "class_name", "family"), ENCODERS, ids=[case[2] for case in ENCODERS]
)
def test_padding_inside_a_row_and_uneven_texts(name, head, class_name, family, tmp_path):
    """Padding at either end and inside a row, and a row of nothing else; texts that share rows."""
    reference = save_model(name, class_name, family, tmp_path)
    model = bert_jax.load(tmp_path)
    generator = np.random.default_rng(0)
    ids = generator.integers(5, 53, (5, 20))
    mask = np.ones_like(ids)
    mask[1, 4:] = mask[2, 5:9] = mask[2, 17:] = mask[3, :6] = mask[4] = 0
    ids[mask == 0] = 1
    hidden = model.module.apply({"params": model.params}, ids, None, mask).last_hidden_state
    assert np.isfinite(hidden).all()
    expected = last_states(reference, ids, mask)
    np.testing.assert_allclose(hidden[mask == 1], expected[mask == 1], atol=2e-5)

    if name == "mobilebert":
        return  # its last token sees whether padding follows
    lengths = generator.integers(1, 30, 40)
    texts = [" ".join(PIECES[i] for i in generator.integers(5, 53, n)) for n in lengths]
    vectors = model.embed(texts, "mean", batch_size=8)
    for text, vector in zip(texts, vectors, strict=True):
        (encoding,) = model.tokenizer.encode_batch([text])
        row = np.array([encoding.ids])
        alone = last_states(reference, row, np.ones_like(row))[0].mean(0)
        np.testing.assert_allclose(vector, alone, atol=2e-5)


@pytest.mark.parametrize(
    ("name", "head", "class_name", "family"), CASES, ids=[case[2] for case in CASES]
)
def test_it_is_the_class_of_transformers(name, head, class_name, family, tmp_path):
    model_class = type(save_model(name, class_name, family, tmp_path / "model"))
    report = compare(tmp_path / "model")
    # Without LayerNorm rounding is amplified: then the report compares with float64, too.
    is_rounding = bool(report.causes) and name == "mobilebert"
    is_rounding = is_rounding and all(cause.startswith("rounding: ") for cause in report.causes)
    assert is_rounding or all(difference.agrees for difference in report.differences), report
    loaded = bert_jax.load(tmp_path / "model")
    assert loaded.description.head == head
    assert loaded.report.complete
    loaded.save(tmp_path / "again")
    tensors, again = (
        load_file(tmp_path / part / "model.safetensors") for part in ("model", "again")
    )
    assert tensors.keys() == again.keys()
    for tensor, expected in tensors.items():
        np.testing.assert_array_equal(again[tensor], expected, err_msg=tensor, strict=True)
    _, information = model_class.from_pretrained(tmp_path / "again", output_loading_info=True)
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not information[kind], kind
    assert json.loads((tmp_path / "again" / "config.json").read_text())["model_type"] == (
        family.model_type
    )
