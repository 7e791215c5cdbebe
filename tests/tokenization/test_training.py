import os
import subprocess
import sys

import pytest

from bert_jax.errors import UserError
from bert_jax.tokenization import (
    SpecialIds,
    train_byte_level_bpe,
    train_sentencepiece,
    train_wordpiece,
)

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]

# Prints what training makes of 3,000 words in which many pairs are equally frequent.
TRAIN_AND_PRINT = """
import random
from bert_jax.tokenization import train_byte_level_bpe, train_sentencepiece, train_wordpiece

random.seed(1)
words = ["".join(random.choices("abcdefghij", k=random.randint(2, 9))) for _ in range(1000)]
texts = [" ".join(random.choices(words, k=30)) for _ in range(100)]
wordpiece = train_wordpiece(texts, vocab_size=400)
sentencepiece = train_sentencepiece(texts, vocab_size=300, lowercase=True)
byte_level = train_byte_level_bpe(texts, vocab_size=500)
for tokenizer in (wordpiece, sentencepiece, byte_level):
    print(*map(tokenizer.id_to_token, range(tokenizer.vocab_size)), tokenizer.fingerprint())
"""


def vocabulary(tokenizer):
    return [tokenizer.id_to_token(token_id) for token_id in range(tokenizer.vocab_size)]


def test_wordpiece_of_a_text_that_one_can_do_by_hand():
    # "ab" 5 times, "abc" 3 times: a + ##b (8 times) is joined first, then ab + ##c (3 times).
    tokenizer = train_wordpiece(iter(["ab ab abc", "ab, AB ab abc abc"]), vocab_size=100)

    assert vocabulary(tokenizer) == [
        *SPECIALS,
        *[",", "a", "b", "c", "##b", "##c"],
        *["ab", "abc"],
    ]
    assert tokenizer.special_ids == SpecialIds(pad=0, unk=1, cls=2, sep=3, mask=4)
    assert tokenizer.encode_sentences(["Ab abcc"]) == [[11, 12, 10]]


def test_vocab_size_and_min_frequency_limit_the_pieces():
    texts = ["ab ab ab cd cd"]

    def learnt(**options):
        return vocabulary(train_wordpiece(texts, **options))[len(SPECIALS) + 6 :]

    assert learnt(vocab_size=100) == ["ab", "cd"]
    assert learnt(vocab_size=12) == ["ab"]
    assert learnt(vocab_size=100, min_frequency=3) == ["ab"]
    assert learnt(vocab_size=11) == []


def test_case_accents_and_chinese_follow_the_options():
    texts = ["Été 中国"] * 3

    assert "ete" in vocabulary(train_wordpiece(texts, vocab_size=50))
    assert "été" in vocabulary(train_wordpiece(texts, vocab_size=50, strip_accents=False))
    assert "Été" in vocabulary(train_wordpiece(texts, vocab_size=50, lowercase=False))
    assert "中国" not in vocabulary(train_wordpiece(texts, vocab_size=50))
    assert "中国" in vocabulary(train_wordpiece(texts, vocab_size=50, tokenize_chinese_chars=False))


@pytest.mark.parametrize(
    ("coverage", "least", "letters"),
    [
        # Of 10 characters, a is 4, b 3, c 2, d 1.
        (0.4, 0, "a"),
        (0.41, 0, "ab"),
        (0.7, 0, "ab"),
        (0.9, 0, "abc"),
        (0.9999, 0, "abcd"),
        (1.0, 0, "abcd"),
        (0.4, 3, "abc"),
    ],
)
def test_the_alphabet_covers_a_share_of_the_characters(coverage, least, letters):
    tokenizer = train_wordpiece(
        ["a aa ab b b c c d"], vocab_size=50, character_coverage=coverage, alphabet_size=least
    )

    assert "".join(piece for piece in vocabulary(tokenizer) if len(piece) == 1) == letters
    known = [token_id != 1 for (token_id,) in tokenizer.encode_sentences(list("abcd"))]
    assert known == [letter in letters for letter in "abcd"]


def test_an_alphabet_that_does_not_fit_is_cut_and_said():
    # 5 special tokens; a and ##a; b and ##b; c, d and e are words of one letter.
    problems = []
    for size, letters in ((12, "abcde"), (9, "ab"), (8, "a"), (7, "a")):
        tokenizer = train_wordpiece(["aaa bab c c d e"], vocab_size=size, report=problems.append)
        ids = tokenizer.encode_sentences(list("abcde"))
        assert [i != [1] for i in ids] == [letter in letters for letter in "abcde"]
    assert list(map(str, problems)) == [
        f"tokenizer.vocab_size is {size}; the special tokens and the alphabet of the text are 12 "
        "pieces: give at least that"
        for size in (9, 8, 7)
    ]


def test_literal_special_tokens_and_very_long_words_in_the_text_do_no_harm():
    tokenizer = train_wordpiece(["[MASK] [MASK] ##ab " + "x" * 5000], vocab_size=60)

    pieces = vocabulary(tokenizer)
    assert pieces[:5] == SPECIALS
    assert "mask" in pieces
    assert "x" not in pieces
    assert len(set(pieces)) == len(pieces)


def test_sentencepiece_has_the_ids_of_albert(capfd):
    texts = ["The cat sat.\nThe dog sat.", "A café"] * 4
    tokenizer = train_sentencepiece(iter(texts), vocab_size=21, lowercase=True)

    assert vocabulary(tokenizer)[:5] == ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
    assert tokenizer.vocab_size == 21
    assert tokenizer.cleaner.lowercase
    assert tokenizer.decode(tokenizer.encode_sentences(["the café sat."])[0]) == "the café sat."
    assert capfd.readouterr() == ("", "")


def test_sentencepiece_learns_from_all_of_a_long_line_but_not_from_rare_characters():
    halves = ["ab " * 10_000, "cd " * 10_000, "x" * 20_000]
    tokenizer = train_sentencepiece(["".join(halves)], vocab_size=11, lowercase=True)
    assert {"a", "b", "c", "d", "x"} <= set(vocabulary(tokenizer))

    for coverage, known in ((1.0, True), (0.999, False)):
        tokenizer = train_sentencepiece(
            ["ab " * 5000 + "é"], vocab_size=9, character_coverage=coverage
        )
        assert (tokenizer.special_ids.unk not in tokenizer.encode_sentences(["é"])[0]) is known


@pytest.mark.slow
def test_training_gives_the_same_bytes_in_every_process():
    outputs = set()
    for seed, threads in (("1", "1"), ("2", "3"), ("3", "4")):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "RAYON_NUM_THREADS": threads}
        command = [sys.executable, "-c", TRAIN_AND_PRINT]
        outputs.add(
            subprocess.run(command, env=environment, capture_output=True, check=True).stdout
        )

    assert len(outputs) == 1
    wordpiece, sentencepiece, byte_level = outputs.pop().decode().splitlines()
    assert len(byte_level.split()) == 500 + 1
    assert len(wordpiece.split()) == 400 + 1
    assert len(sentencepiece.split()) == 300 + 1


def test_byte_level_bpe_of_a_text_that_one_can_do_by_hand():
    # "Ġab" 4 times, "Ġabc" 3 times: a b and Ġ ab (7 times each), then Ġab c (3 times).
    tokenizer = train_byte_level_bpe(iter(["ab ab abc", "ab ab abc abc"]), vocab_size=500)

    assert vocabulary(tokenizer)[:5] == ["<s>", "<pad>", "</s>", "<unk>", "!"]
    assert vocabulary(tokenizer)[260:] == ["ab", "Ġab", "Ġabc", "<mask>"]
    assert tokenizer.special_ids == SpecialIds(pad=1, unk=3, cls=0, sep=2, mask=263, bos=0, eos=2)
    assert tokenizer.encode_batch(["ab abé"])[0].tokens == ["<s>", "Ġab", "Ġab", *"Ã©", "</s>"]
    for prefix, tokens in ((True, ["Ġ", "ab"]), (False, ["ab"])):
        small = train_byte_level_bpe(["ab ab"], vocab_size=262, add_prefix_space=prefix)
        assert vocabulary(small)[260:] == ["ab", "<mask>"]
        assert small.encode_batch(["ab"])[0].tokens == ["<s>", *tokens, "</s>"]


def broken():
    yield "the cat"
    raise UserError("corpus.txt:2: byte 0xff is not UTF-8")


HELLO = ["hello world foo bar"] * 3


@pytest.mark.parametrize(
    ("train", "texts", "options", "message"),
    [
        *(
            (train, texts, {"vocab_size": 300}, message)
            for train in (train_byte_level_bpe, train_wordpiece, train_sentencepiece)
            for texts, message in (
                (list, "the texts hold no word"),
                (lambda: ["", " \n "], "the texts hold no word"),
                (broken, "corpus.txt:2"),  # what the source raises comes through
            )
        ),
        (train_wordpiece, HELLO.copy, {"vocab_size": 10}, "vocab_size is 10; .* are 21 pieces"),
        (train_byte_level_bpe, HELLO.copy, {"vocab_size": 260}, "is 260; .* are 261 pieces"),
        (train_sentencepiece, HELLO.copy, {"vocab_size": 10}, "is 10; .* text are 16 pieces"),
        (train_sentencepiece, HELLO.copy, {"vocab_size": 1000}, "is 1000; .* give at most 17, or"),
        (train_sentencepiece, HELLO.copy, {"vocab_size": 0}, "cannot train 0 pieces"),
        (
            *(train_sentencepiece, HELLO.copy),
            *({"vocab_size": 17, "model_type": "word"}, "model_type is 'word'"),
        ),
    ],
)
def test_what_cannot_be_trained_is_explained(tmp_path, monkeypatch, train, texts, options, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=message):
        train(texts(), **options)
    assert list(tmp_path.iterdir()) == []
