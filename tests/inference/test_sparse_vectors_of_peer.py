"""Sparse vectors beside sentence-transformers 6, with random weights: its files, and ours."""

import numpy as np
import pytest

import bert_jax
from bert_jax.models.heads.sparse_vectors import ACTIVATIONS, POOLING_STRATEGIES

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
sentence_transformers = pytest.importorskip("sentence_transformers")

TEXTS = ["the cat sat on the mat .", "a dog", "", "the sea was low " * 9, "it was warm ."]


BERT = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
DISTILBERT = {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24}


@pytest.fixture(scope="module", params=[("Bert", BERT), ("DistilBert", DISTILBERT)])
def transformer(request, tmp_path_factory, tokenizer):
    """A model directory of transformers."""
    directory = tmp_path_factory.mktemp("transformer")
    torch.manual_seed(0)
    family, sizes = request.param
    model = getattr(transformers, f"{family}ForMaskedLM")
    options = {"vocab_size": tokenizer.vocab_size, "initializer_range": 0.5}
    model(model.config_class(**options, **sizes)).save_pretrained(directory)
    tokenizer.save(directory)
    return directory


@pytest.mark.parametrize("activation_function", ACTIVATIONS)
@pytest.mark.parametrize("pooling_strategy", POOLING_STRATEGIES)
def test_vectors_and_scores_in_both_directions(
    transformer, tmp_path, pooling_strategy, activation_function
):
    modules = sentence_transformers.sparse_encoder.modules
    encoder = sentence_transformers.base.modules.Transformer(
        str(transformer), transformer_task="fill-mask", max_seq_length=24
    )
    peer = sentence_transformers.SparseEncoder(
        modules=[encoder, modules.SpladePooling(pooling_strategy, activation_function)],
        prompts={"query": "the sea : "},
        max_active_dims=12,
        device="cpu",
    )
    peer.save(str(tmp_path / "peer"))
    model = bert_jax.load(tmp_path / "peer")
    model.save(tmp_path / "ours")
    again = sentence_transformers.SparseEncoder(str(tmp_path / "ours"), device="cpu")
    assert (again.max_active_dims, again.max_seq_length) == (12, 24)
    vectors = []
    for prompt in (None, "query"):
        expected = peer.encode(TEXTS, prompt_name=prompt, convert_to_sparse_tensor=False).numpy()
        assert ((expected > 0).sum(axis=1) == 12).any()
        again_encoded = again.encode(TEXTS, prompt_name=prompt, convert_to_sparse_tensor=False)
        np.testing.assert_allclose(again_encoded.numpy(), expected, rtol=1e-5, atol=1e-5)
        computed = np.zeros_like(expected)
        for row, vector in zip(computed, model.sparse_vectors(TEXTS, prompt=prompt), strict=True):
            row[vector.ids] = vector.weights
        np.testing.assert_allclose(computed, expected, rtol=1e-5, atol=1e-5)
        vectors.append(computed)
    queries, documents = (peer.encode(TEXTS, prompt_name=prompt) for prompt in ("query", None))
    expected = peer.similarity(queries, documents).to_dense().numpy()
    np.testing.assert_allclose(vectors[1] @ vectors[0].T, expected, rtol=1e-5)
