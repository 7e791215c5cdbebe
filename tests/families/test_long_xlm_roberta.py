"""XLM-R of 8,194 positions, as bge-m3 and arctic-embed-l-v2.0, beside sentence-transformers."""

import json

import numpy as np
import pytest
import tokenizers

import bert_jax
from bert_jax.tokenization import load_tokenizer
from bert_jax.tokenization.interface import XLM_ROBERTA

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
sentence_transformers = pytest.importorskip("sentence_transformers")

WORDS = ["the", "sea", "海", "море", "बर्फ", "dagur", "query", ":"]
SPECIALS = ["<s>", "<pad>", "</s>", "<unk>"]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    """A model directory of transformers."""
    directory = tmp_path_factory.mktemp("encoder")
    pieces = [*SPECIALS, "▁", *(f"▁{word}" for word in WORDS), "<mask>"]
    library = tokenizers.Tokenizer(
        tokenizers.models.Unigram([(p, 0.0 if p in SPECIALS else -3.0) for p in pieces], unk_id=3)
    )
    library.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [tokenizers.pre_tokenizers.WhitespaceSplit(), tokenizers.pre_tokenizers.Metaspace()]
    )
    library.decoder = tokenizers.decoders.Metaspace()
    library.add_special_tokens([*SPECIALS, "<mask>"])
    library.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", 0), ("</s>", 2)],
    )
    library.save(str(directory / "tokenizer.json"))
    load_tokenizer(directory, kind=XLM_ROBERTA).save(directory, max_length=8192)
    torch.manual_seed(0)
    config = transformers.XLMRobertaConfig(
        vocab_size=len(pieces),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=8194,
        type_vocab_size=1,
        layer_norm_eps=1e-5,
        initializer_range=0.3,
    )
    transformers.XLMRobertaModel(config).save_pretrained(directory)
    return directory


def texts():
    """One cut at 8,192 tokens, one beyond the 514 positions of other files, and short ones."""
    generator = np.random.default_rng(0)
    return [" ".join(generator.choice(WORDS, count)) for count in (8300, 700, 513, 9, 1)]


@pytest.mark.parametrize(("pooling", "prompt"), [("cls", ""), ("mean", "query: ")])
def test_vectors_of_long_texts(encoder, tmp_path, pooling, prompt):
    """[CLS] as bge-m3 and arctic-embed, the mean and a prompt as e5."""
    from sentence_transformers.base.modules import Normalize, Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    modules = [Transformer(str(encoder)), Pooling(16, pooling), Normalize()]
    reference = sentence_transformers.SentenceTransformer(
        modules=modules, device="cpu", prompts={"query": prompt}
    )
    reference.save(str(tmp_path / "model"), create_model_card=False)
    model = bert_jax.load(tmp_path / "model")
    assert model.config.max_length == 8192
    vectors = model.embed(texts(), prompt="query", batch_size=2)
    expected = reference.encode(texts(), prompt_name="query", batch_size=1)
    np.testing.assert_allclose(vectors, expected, atol=1e-5)
    # Positions beyond 514 are not repeated ones.
    assert np.abs(model.embed(texts(), max_length=514)[0] - vectors[0]).max() > 1e-3

    model.save(tmp_path / "saved")
    fields = json.loads((tmp_path / "saved" / "config.json").read_text())
    assert fields["max_position_embeddings"] == 8194
    again = sentence_transformers.SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    np.testing.assert_allclose(
        again.encode(texts()[1:], prompt_name="query"), expected[1:], atol=1e-5
    )
