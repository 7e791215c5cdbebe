"""DPR's three models beside transformers, with random weights: vectors, passages, the answer."""

import pytest

import bert_jax
from bert_jax.data.examples import Document
from bert_jax.inference.index_options import IndexOptions

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

DOCUMENTS = [
    Document(
        "a", "the cat sat on the mat . it was warm and the dog sat down by a tree .", "the sea"
    ),
    Document("b", "one found a shell by the sea and the boys walked up .", "a song"),
    Document("c", "the sun was long", ""),
]
QUESTION = "the cat was warm"


def test_the_models_of_transformers_answer_alike(tmp_path, tokenizer):
    torch.manual_seed(0)
    config = transformers.DPRConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=48,
        initializer_range=0.5,
    )
    classes = [
        transformers.DPRContextEncoder,
        transformers.DPRQuestionEncoder,
        transformers.DPRReader,
    ]
    directories = [tmp_path / cls.__name__ for cls in classes]
    peers = [cls(config).eval() for cls in classes]
    for peer, directory in zip(peers, directories, strict=True):
        peer.save_pretrained(directory)
        tokenizer.save(directory)
    contexts, questions, reader = map(bert_jax.load, directories)
    index = contexts.index(
        DOCUMENTS,
        query_model=questions,
        options=IndexOptions(passages=6, titles="pair", similarity="dot"),
    )
    (hits,) = index.search([QUESTION], 4)
    encode = transformers.BertTokenizerFast.from_pretrained(directories[0])
    with torch.no_grad():
        query = peers[1](**encode(QUESTION, return_tensors="pt")).pooler_output
        for hit in hits:
            texts = (hit.title, hit.text) if hit.title else (hit.text,)
            passage = peers[0](**encode(*texts, return_tensors="pt")).pooler_output
            assert hit.score == pytest.approx(float((query * passage).sum()), rel=1e-5)

        read = transformers.DPRReaderTokenizerFast.from_pretrained(directories[2])
        titles, texts = [hit.title for hit in hits], [hit.text for hit in hits]
        batch = read([QUESTION] * 4, titles, texts, padding=True, return_tensors="pt")
        output = peers[2](**batch)
    best, *_ = read.decode_best_spans(
        batch, output, num_spans=1, max_answer_length=10, num_spans_per_passage=1
    )
    answer = bert_jax.OpenQA(index, reader).answer(QUESTION, top_k=4)
    assert answer.passage.hit == hits[best.doc_id]
    assert answer.text.replace(" ", "") == best.text.replace(" ", "")
    assert [answer.score, answer.relevance] == pytest.approx(
        [float(best.span_score), float(best.relevance_score)], abs=1e-5
    )
