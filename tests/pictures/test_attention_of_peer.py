"""The numbers behind the picture are the attentions of transformers."""

import numpy as np
import pytest

from tests.pictures.test_attention import data_of, weights_of

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

TEXTS = ["the cat sat on the mat", "a dog", "the boy ran to the sea and the dog sang"]


def test_the_picture_of_three_sentences(base_model, tmp_path, optimized):
    from bert_jax.inference.loading import load
    from bert_jax.inference.predict import predict

    source, target = tmp_path / "texts.txt", tmp_path / "page.html"
    source.write_text("\n".join(TEXTS) + "\n")
    assert predict(load(base_model), "attentions", source, target, {"progress": False}) == 3
    tokenizer = transformers.AutoTokenizer.from_pretrained(base_model)
    peer = transformers.AutoModel.from_pretrained(base_model, attn_implementation="eager").eval()
    for text, (fields,) in zip(TEXTS, data_of(target.read_text()), strict=True):
        inputs = tokenizer(text, return_tensors="pt")
        with torch.no_grad():
            attentions = peer(**inputs, output_attentions=True).attentions
        expected = np.stack([layer[0].numpy() for layer in attentions])  # LNTT
        assert fields["queries"] == tokenizer.convert_ids_to_tokens(inputs["input_ids"][0])
        count = len(fields["queries"])
        # Half a step of 1/65535, and the rounding of float32.
        np.testing.assert_allclose(weights_of(fields, count, count), expected, atol=9e-6)
