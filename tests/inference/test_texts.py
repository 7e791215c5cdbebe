"""Texts through a model: one row and one answer each."""

import jax
import numpy as np

from bert_jax.inference.batching import BatchOptions
from bert_jax.inference.texts import text_answers


def test_inputs_beside_the_tokens(model):
    found = text_answers(
        model,
        ["sun", "the sea"],
        jax.jit(lambda batch: batch["number"] * 2),
        lambda encoding, number: (encoding.tokens[1], int(number)),
        BatchOptions(),
        inputs=lambda batch: {"number": np.array([asked.number for asked, _ in batch.rows]) + 10},
    )
    assert list(found) == [("sun", 20), ("the", 22)]


def test_long_texts_are_cut_and_counted_once(model, capsys):
    texts = ["sun " * 31, "sun " * 30, "sun", ("sun " * 40, "sea " * 20), "sea " * 99]
    count = jax.jit(lambda batch: batch["attention_mask"].sum(axis=1))

    def ask(texts, **options):
        batches = BatchOptions(batch_size=1, window=2, **options)
        return list(text_answers(model, texts, count, lambda found, _: found.tokens, batches))

    found = ask(texts)
    assert [len(tokens) for tokens in found] == [32, 32, 3, 32, 32]
    assert [found[3].count(word) for word in ("sun", "sea")] == [15, 14]
    assert found[0] == ["[CLS]", *["sun"] * 30, "[SEP]"]
    assert capsys.readouterr().err == "3 of 5 texts were longer than 32 tokens: cut\n"

    ask(["sun " * 30])
    assert capsys.readouterr().err == ""
    assert len(ask(["sun " * 30], max_length=5)[0]) == 5
    assert capsys.readouterr().err == ""  # it was asked for
