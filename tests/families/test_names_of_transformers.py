"""Files in which a tied table has one name alone, or names have their prefix twice."""

import numpy as np
import pytest

import bert_jax
from bert_jax.families.family import find_family

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
safetensors_torch = pytest.importorskip("safetensors.torch")

SIZES = {
    "vocab_size": 40,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 20,
    "pad_token_id": 0,
}
OWN = {
    "albert": {"embedding_size": 8},
    "bert": {},
    "camembert": {},
    "distilbert": {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24},
    "electra": {"embedding_size": 8},
    "mobilebert": {"embedding_size": 8, "intra_bottleneck_size": 8},
    "roberta": {},
    "xlm-roberta": {},
}


@pytest.mark.parametrize("kept", ["both", "words", "decoder", "twice"])
@pytest.mark.parametrize("name", OWN)
def test_a_tied_table_and_a_repeated_prefix(name, kept, tmp_path, tokenizer):
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(name, **SIZES, **OWN[name])
    theirs = transformers.AutoModelForMaskedLM.from_config(config).eval()
    theirs.save_pretrained(tmp_path)
    tokenizer.save(tmp_path)
    tensors = {key: tensor.clone() for key, tensor in theirs.state_dict().items()}
    names = find_family(name).huggingface
    words, decoder = (
        names.tensor_of(parameter)
        for parameter in ("bert/embeddings/word_embeddings/embedding", "mlm_head/decoder")
    )
    assert {words, decoder} <= set(tensors)
    for key in {"words": [decoder], "decoder": [words]}.get(kept, []):
        del tensors[key]
    if kept == "twice":
        tensors = {f"{names.prefix}{key}": tensor for key, tensor in tensors.items()}
    path = str(tmp_path / "model.safetensors")
    safetensors_torch.save_file(tensors, path, metadata={"format": "pt"})
    model = bert_jax.load(tmp_path)
    assert model.description.head == "masked_lm"
    assert model.report.complete
    ids = np.arange(5, 15)[None]
    with torch.no_grad():
        expected = theirs(torch.tensor(ids)).logits.numpy()
    found = model.module.apply({"params": model.params}, ids)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
