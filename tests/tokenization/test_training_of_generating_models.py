"""Vocabularies for models that write text: by eye."""

import pytest

from bert_jax.errors import UserError
from bert_jax.tokenization import (
    SpecialIds,
    load_tokenizer,
    train_gpt2,
    train_marian,
    train_t5,
)

TEXTS = ["thank you for inviting me to your party last week", "wir danken für die Party"] * 9


def vocabulary(tokenizer):
    return [tokenizer.id_to_token(token_id) for token_id in range(tokenizer.vocab_size)]


def test_the_lectures_example_of_bpe():
    """low 5 times, lower 2, newest 6, widest 3: es (9 times), est (9) and lo (7) are joined.

    Of pairs of the same count (e s and s t; l o, o w and the mark of a word with l), the library
    takes the one with the smallest ids: the letters are in alphabetical order, the mark after them.
    """
    text = "low " * 5 + "lower " * 2 + "newest " * 6 + "widest " * 3
    tokenizer = train_gpt2([text.strip()], vocab_size=256 + 3 + 1)
    assert vocabulary(tokenizer)[256:] == ["es", "est", "lo", "<|endoftext|>"]
    assert tokenizer.encode_batch(["lowest"])[0].tokens == ["lo", "w", "est"]


def test_gpt2_has_the_bytes_the_pieces_and_one_special_token(tmp_path):
    tokenizer = train_gpt2(TEXTS, vocab_size=300)
    assert tokenizer.special_ids == SpecialIds(
        pad=None, unk=299, cls=None, sep=None, mask=None, bos=299, eos=299
    )
    (ids,) = tokenizer.encode_sentences(["thank you"])
    assert tokenizer.decode(ids) == " thank you"
    tokenizer.save(tmp_path)
    assert load_tokenizer(tmp_path).fingerprint() == tokenizer.fingerprint()


def test_t5_has_its_first_ids_and_descending_sentinels(tmp_path):
    tokenizer = train_t5(TEXTS, vocab_size=36, sentinels=3)
    assert vocabulary(tokenizer)[:3] == ["<pad>", "</s>", "<unk>"]
    assert vocabulary(tokenizer)[-3:] == ["<extra_id_2>", "<extra_id_1>", "<extra_id_0>"]
    assert tokenizer.special_ids == SpecialIds(
        pad=0, unk=2, cls=None, sep=None, mask=None, bos=None, eos=1
    )
    (encoding,) = tokenizer.encode_batch(["thank <extra_id_1> your Party"])
    assert (encoding.ids.count(34), encoding.ids[-1]) == (1, 1)
    assert tokenizer.decode(encoding.ids) == "thank your Party"
    tokenizer.save(tmp_path)
    assert load_tokenizer(tmp_path).fingerprint() == tokenizer.fingerprint()
    assert train_t5(TEXTS, vocab_size=133).sentinel_ids() == list(range(132, 32, -1))


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_marian_has_one_model_for_both_languages(tmp_path, model_type):
    tokenizer = train_marian(TEXTS, vocab_size=34, model_type=model_type)
    assert [vocabulary(tokenizer)[i] for i in (0, 1, -1)] == ["</s>", "<unk>", "<pad>"]
    assert tokenizer.special_ids == SpecialIds(
        pad=33, unk=1, cls=None, sep=None, mask=None, bos=None, eos=0
    )
    (source,) = tokenizer.encode_batch(["thank für Party"])
    assert tokenizer.encode_targets(["thank für Party"]) == [source]
    assert tokenizer.decode(source.ids) == "thank für Party"
    tokenizer.save(tmp_path)
    assert load_tokenizer(tmp_path).fingerprint() == tokenizer.fingerprint()
    assert (tmp_path / "source.spm").read_bytes() == (tmp_path / "target.spm").read_bytes()


def test_case_is_kept_unless_the_table_of_the_model_folds_it():
    for train, size in ((train_t5, 132), (train_marian, 32)):
        for lowercase, text in ((False, "die Party"), (True, "die party")):
            tokenizer = train(TEXTS, vocab_size=size, lowercase=lowercase)
            assert tokenizer.decode(tokenizer.encode_batch(["die Party"])[0].ids) == text


@pytest.mark.parametrize(
    ("train", "texts", "size", "message"),
    [
        (train_t5, [" "], 140, "the texts hold no word"),
        (train_t5, TEXTS, 1000, "vocab_size is 1000; the text is enough for 1.. pieces: give at"),
        (train_t5, TEXTS, 110, "vocab_size is 110; the special tokens and .* are 1.. pieces"),
        (train_marian, TEXTS, 1000, "vocab_size is 1000; the text is enough for .. pieces"),
        (train_gpt2, TEXTS, 256, "vocab_size is 256; .* are 257 pieces: give at least that"),
    ],
)
def test_what_cannot_be_trained_is_explained(train, texts, size, message):
    with pytest.raises(UserError, match=message):
        train(texts, vocab_size=size)
