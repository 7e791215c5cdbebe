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
    "roberta": {"type_vocab_size": 1, "layer_norm_eps": 1e-5},
}
FIELDS["camembert"] = FIELDS["xlm_roberta"] = FIELDS["roberta"]
CASES = [
    (name, head, class_name, family)
    for name in family_names()
    if name != "bert"
    for family in (find_family(name), *find_family(name).others)
    for head, class_name in family.class_names.items()
]


def save_model(name, class_name, family, directory):
    """A random model of transformers with a tokenizer, in a directory."""
    fields = SIZES | FIELDS.get(name, {})
    keys = {family.field_names.get(field, field): value for field, value in fields.items()}
    model_class = getattr(transformers, class_name)
    torch.manual_seed(0)
    model = model_class(model_class.config_class(**keys)).eval()
    with torch.no_grad():  # biases and norms, too
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    model.save_pretrained(directory)
    WordPieceTokenizer.from_vocabulary(PIECES, BertSwitches(True, None, True)).save(directory)
    return model


def last_states(model, ids, mask):
    """The last hidden states of transformers, [B, T, D]."""
    with torch.no_grad():
        output = model(torch.tensor(ids), torch.tensor(mask), output_hidden_states=True)
    return output.hidden_states[-1].numpy()


ENCODERS = [case for case in CASES if case[1] == "encoder"]


@pytest.mark.parametrize(
    ("name", "head", "class_name", "family"), ENCODERS, ids=[case[2] for case in ENCODERS]
)
def test_padding_inside_a_row_and_uneven_texts(name, head, class_name, family, tmp_path):
    """Padding inside a row, and a short row between longer ones; then texts that share rows."""
    reference = save_model(name, class_name, family, tmp_path)
    model = bert_jax.load(tmp_path)
    generator = np.random.default_rng(0)
    ids = generator.integers(5, 53, (4, 20))
    mask = np.ones_like(ids)
    mask[1, 4:] = mask[2, 5:9] = mask[2, 17:] = 0
    ids[mask == 0] = 1
    hidden = model.module.apply({"params": model.params}, ids, None, mask).last_hidden_state
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
