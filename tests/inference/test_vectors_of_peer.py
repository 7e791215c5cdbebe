"""Vectors beside sentence-transformers 6, with random weights: what it writes, read; and back."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

import bert_jax
from bert_jax.models.heads.text_vectors import SIMILARITIES

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
sentence_transformers = pytest.importorskip("sentence_transformers")

WIDTH = 16
TEXTS = ["the cat sat on the mat .", "a dog", "", "the sea was low " * 9, "it was warm ."]
POOLINGS = (
    *("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"),
    *(("mean", "cls"), ("max", "mean", "lasttoken")),
)
PROMPTS = {"query": "the sea was : ", "passage": ""}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory, tokenizer) -> Path:
    """A model directory of transformers."""
    directory = tmp_path_factory.mktemp("encoder")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=WIDTH,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=48,
        initializer_range=0.3,
    )
    transformers.BertModel(config).save_pretrained(directory)
    tokenizer.save(directory)
    return directory


@pytest.fixture
def publish(encoder, tmp_path):
    """Saves modules after an encoder; returns that library's model of the directory."""
    from sentence_transformers.base.modules import Transformer

    def saved(*modules, **options):
        model = sentence_transformers.SentenceTransformer(
            modules=[Transformer(str(encoder)), *modules], device="cpu", **options
        )
        for parameter in (value for module in modules for value in module.parameters()):
            torch.nn.init.normal_(parameter, std=0.5)
        model.save(str(tmp_path / "peer"), create_model_card=False)
        return opened(tmp_path / "peer")

    return saved


def opened(directory):
    return sentence_transformers.SentenceTransformer(str(directory), device="cpu").eval()


def tails(width):
    """Modules after a pooling, by whether there is a Dense and whether it ends in a Normalize."""
    from sentence_transformers.base.modules import Dense, Normalize
    from sentence_transformers.sentence_transformer.modules import Dropout, LayerNorm

    yield []
    yield [Normalize()]
    yield [LayerNorm(width), Dropout(0.3), Dense(width, 8, use_residual=True)]
    yield [Dense(width, width, bias=False, activation_function=torch.nn.GELU()), Normalize()]


@pytest.mark.parametrize("pooling", POOLINGS)
def test_every_pooling_with_and_without_dense_normalize_prompt_and_limit(
    publish, tmp_path, pooling
):
    from sentence_transformers.sentence_transformer.modules import Pooling

    count = 1 if isinstance(pooling, str) else len(pooling)
    prompts = ((None, True, None), ("query", True, 12), ("query", False, None))
    for tail, (prompt, include, limit) in itertools.product(tails(count * WIDTH), prompts):
        reference = publish(
            Pooling(WIDTH, pooling, include_prompt=include),
            *tail,
            prompts=PROMPTS,
            default_prompt_name=prompt,
        )
        if limit:
            fields = {"max_seq_length": limit, "do_lower_case": False}
            (tmp_path / "peer" / "sentence_bert_config.json").write_text(json.dumps(fields))
            reference = opened(tmp_path / "peer")
        expected = reference.encode(TEXTS)
        model = bert_jax.load(tmp_path / "peer")
        np.testing.assert_allclose(model.embed(TEXTS), expected, atol=1e-5)
        model.save(tmp_path / "saved")
        np.testing.assert_allclose(opened(tmp_path / "saved").encode(TEXTS), expected, atol=1e-6)


@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_similarity_and_truncation(publish, tmp_path, similarity):
    from sentence_transformers.base.modules import Normalize
    from sentence_transformers.sentence_transformer.modules import Pooling

    reference = publish(
        Pooling(WIDTH, "mean"), Normalize(), similarity_fn_name=similarity, truncate_dim=5
    )
    vectors = reference.encode(TEXTS)
    model = bert_jax.load(tmp_path / "peer")
    assert vectors.shape == (5, 5)
    np.testing.assert_allclose(model.embed(TEXTS), vectors, atol=1e-5)
    expected = reference.similarity(vectors, vectors)
    np.testing.assert_allclose(model.similarity(TEXTS), expected, atol=1e-5)
    normal = reference.encode(TEXTS, normalize_embeddings=True)
    np.testing.assert_allclose(model.embed(TEXTS, normalize=True), normal, atol=1e-5)
    model.save(tmp_path / "saved")
    again = opened(tmp_path / "saved")
    np.testing.assert_allclose(again.encode(TEXTS), vectors, atol=1e-6)
    assert (again.similarity_fn_name, again.truncate_dim) == (similarity, 5)


def test_prompts_of_a_search(publish, tmp_path):
    from sentence_transformers.sentence_transformer.modules import Pooling

    prompts = {"query": "the sea : ", "passage": "a dog "}
    reference = publish(Pooling(WIDTH, "cls"), prompts=prompts)
    model = bert_jax.load(tmp_path / "peer")
    expected = reference.similarity(
        reference.encode_query([TEXTS[1]]), reference.encode_document(TEXTS)
    )[0].numpy()
    scores = {match.index: match.score for match in model.search(TEXTS[1], TEXTS)}
    np.testing.assert_allclose([scores[row] for row in range(5)], expected, atol=1e-5)
    np.testing.assert_allclose(
        model.embed(TEXTS, prompt="query"), reference.encode(TEXTS, prompt_name="query"), atol=1e-5
    )


def test_the_pooler_in_place_of_a_pooling(encoder, tmp_path):
    from sentence_transformers.base.modules import Normalize, Transformer

    pooler = {"text": {"method": "forward", "method_output_name": "pooler_output"}}
    module = Transformer(
        str(encoder), modality_config=pooler, module_output_name="sentence_embedding"
    )
    reference = sentence_transformers.SentenceTransformer(modules=[module, Normalize()])
    reference.save(str(tmp_path / "peer"))
    expected = reference.encode(TEXTS)
    model = bert_jax.load(tmp_path / "peer")
    np.testing.assert_allclose(model.embed(TEXTS), expected, atol=1e-5)
    model.save(tmp_path / "saved")
    np.testing.assert_allclose(opened(tmp_path / "saved").encode(TEXTS), expected, atol=1e-6)


def test_lower_case_before_a_tokenizer_that_keeps_capital_letters(publish, encoder, tmp_path):
    from sentence_transformers.sentence_transformer.modules import Pooling

    publish(Pooling(WIDTH, "mean"))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        file = tmp_path / "peer" / name
        text = file.read_text().replace('"lowercase": true', '"lowercase": false')
        file.write_text(text.replace('"do_lower_case": true', '"do_lower_case": false'))
    fields = {"max_seq_length": None, "do_lower_case": True}
    (tmp_path / "peer" / "sentence_bert_config.json").write_text(json.dumps(fields))
    texts = ["The CAT sat on [MASK] mat .", "A DOG", "ΣΑΣ İ", "the cat"]
    expected = opened(tmp_path / "peer").encode(texts)
    model = bert_jax.load(tmp_path / "peer")
    assert not model.tokenizer.switches.do_lower_case
    np.testing.assert_allclose(model.embed(texts), expected, atol=1e-5)
    model.save(tmp_path / "saved")
    np.testing.assert_allclose(opened(tmp_path / "saved").encode(texts), expected, atol=1e-6)
