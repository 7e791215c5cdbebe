import json

import hypothesis
import hypothesis.strategies as st

from bert_jax.tokenization import BertSwitches, WordPieceTokenizer, load_tokenizer
from bert_jax.tokenization.cleaning import looks_lowercased
from bert_jax.tokenization.wordpiece import (
    MAX_CHARACTERS_PER_WORD,
    read_vocabulary,
    write_vocabulary,
)

LOWER_CASED = BertSwitches(do_lower_case=True, strip_accents=None, tokenize_chinese_chars=True)


def test_encodes_one_text(uncased):
    (encoding,) = uncased.encode_batch(["The dog, playing."])

    assert encoding.tokens == ["[CLS]", "the", "dog", ",", "play", "##ing", ".", "[SEP]"]
    assert encoding.ids == [2, 5, 10, 11, 6, 7, 12, 3]
    assert encoding.type_ids == [0, 0, 0, 0, 0, 0, 0, 0]
    words = [(0, 3), (4, 7), (7, 8), (9, 13), (13, 16), (16, 17)]
    assert encoding.offsets == [(0, 0), *words, (0, 0)]
    assert encoding.word_ids == [None, 0, 1, 2, 3, 3, 4, None]
    assert encoding.special_tokens_mask == [1, 0, 0, 0, 0, 0, 0, 1]


def test_encodes_a_pair_with_and_without_special_tokens(uncased):
    (encoding,) = uncased.encode_batch(["the dogs"], ["plays"])
    (bare,) = uncased.encode_batch(["the dog"], ["plays"], add_special_tokens=False)

    assert encoding.tokens == ["[CLS]", "the", "dog", "##s", "[SEP]", "play", "##s", "[SEP]"]
    assert encoding.type_ids == [0, 0, 0, 0, 0, 1, 1, 1]
    first, second = [(0, 3), (4, 7), (7, 8)], [(0, 4), (4, 5)]
    assert encoding.offsets == [(0, 0), *first, (0, 0), *second, (0, 0)]
    assert encoding.word_ids == [None, 0, 1, 1, None, 0, 0, None]
    assert encoding.special_tokens_mask == [1, 0, 0, 0, 1, 0, 0, 1]
    assert (bare.ids, bare.type_ids) == ([5, 10, 6, 8], [0, 0, 1, 1])
    assert bare.special_tokens_mask == [0, 0, 0, 0]


def test_an_accent_goes_with_the_case_unless_the_switch_says_otherwise(
    uncased, cased, cased_pieces
):
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    stripped = WordPieceTokenizer.from_vocabulary(cased_pieces, BertSwitches(False, True, True))

    lowered = uncased.encode_batch([composed.upper(), decomposed])
    kept = cased.encode_batch([composed, decomposed])

    assert [encoding.tokens[1:-1] for encoding in lowered] == [["cafe"], ["cafe"]]
    assert [encoding.offsets[1] for encoding in lowered] == [(0, 4), (0, 4)]
    assert [encoding.tokens[1:-1] for encoding in kept] == [["café"], ["[UNK]"]]
    assert stripped.encode_sentences(["The café"]) == [[5, 8]]


def test_what_cannot_be_pieced_together_is_unknown(uncased):
    longest = "play" + "s" * (MAX_CHARACTERS_PER_WORD - 4)
    texts = [longest, longest + "s", "playful", "🙂 dog"]

    *words, smiley = uncased.encode_batch(texts, add_special_tokens=False)

    pieces = ["play"] + ["##s"] * (MAX_CHARACTERS_PER_WORD - 4)
    assert [word.tokens for word in words] == [pieces, ["[UNK]"], ["[UNK]"]]
    assert smiley.tokens == ["[UNK]", "dog"]
    assert smiley.offsets == [(0, 1), (2, 5)]  # characters, not bytes


NASTY_TEXT = st.text(
    st.one_of(
        st.sampled_from("the dog plays café 中国 ,.[]\t\n\u3000\u200b\u0301\x1cİΣ"),
        st.characters(exclude_categories=["Cs"]),
    )
)


@hypothesis.given(st.lists(NASTY_TEXT.filter(lambda text: "[" not in text or "]" not in text)))
@hypothesis.settings(max_examples=200, deadline=None)
def test_sentences_get_the_ids_of_batches_also_the_second_time(texts):
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "dog", "cafe", "中", "i", ","]
    tokenizer = WordPieceTokenizer.from_vocabulary(pieces, LOWER_CASED)
    expected = [e.ids for e in tokenizer.encode_batch(texts, add_special_tokens=False)]

    assert tokenizer.encode_sentences(texts) == expected
    assert tokenizer.encode_sentences(texts) == expected


def test_the_memory_of_sentences_stays_small_and_right(uncased, monkeypatch):
    monkeypatch.setattr("bert_jax.tokenization.wordpiece.REMEMBERED_CHARACTERS", 20)
    sentences = [f"the dog plays {'play' * index}" for index in range(1, 20)]

    encoded = [uncased.encode_sentences([sentence])[0] for sentence in sentences]

    assert [ids[:4] for ids in encoded] == [[5, 10, 6, 8]] * 19
    assert sum(map(len, uncased._remembered)) <= 20


def test_ids_pieces_and_text(uncased, uncased_pieces):
    ids = [2, 5, 10, 11, 6, 7, 12, 3, 0, 0]

    assert uncased.decode(ids) == "the dog, playing."
    text = "[CLS] the dog, playing. [SEP] [PAD] [PAD]"
    assert uncased.decode(ids, skip_special_tokens=False) == text
    assert uncased.vocab_size == 20
    assert [uncased.id_to_token(token_id) for token_id in range(20)] == uncased_pieces
    assert [uncased.token_to_id(piece) for piece in uncased_pieces] == list(range(20))
    assert uncased.token_to_id("absent") is None
    continuations = uncased.continuations()
    assert continuations.dtype == bool
    assert continuations.nonzero()[0].tolist() == [7, 8, 19]


def test_saved_files_load_to_the_same_tokenizer(cased, cased_pieces, tmp_path):
    directory = tmp_path / "new" / "model"
    cased.save(directory)
    text = "The café 中国 THE [MASK]"

    for path in (directory, directory / "tokenizer.json", directory / "vocab.txt"):
        loaded = load_tokenizer(path)
        assert loaded.encode_batch([text]) == cased.encode_batch([text])
        assert loaded.fingerprint() == cased.fingerprint()
    content = "".join(f"{piece}\n" for piece in cased_pieces).encode()
    assert (directory / "vocab.txt").read_bytes() == content
    config = json.loads((directory / "tokenizer_config.json").read_text())
    keys = ("tokenizer_class", "do_lower_case", "mask_token")
    assert [config[key] for key in keys] == ["BertTokenizer", False, "[MASK]"]


def test_the_fingerprint_shows_every_change_of_ids_and_nothing_else(uncased_pieces):
    def fingerprint(pieces, *switches):
        return WordPieceTokenizer.from_vocabulary(pieces, BertSwitches(*switches)).fingerprint()

    same = fingerprint(uncased_pieces, True, None, True)
    others = [
        fingerprint([*uncased_pieces, "##ed"], True, None, True),
        fingerprint(uncased_pieces[:5] + uncased_pieces[:4:-1], True, None, True),
        fingerprint(uncased_pieces, False, None, True),
        fingerprint(uncased_pieces, True, False, True),
        fingerprint(uncased_pieces, True, None, False),
    ]

    assert len({same, *others}) == 6
    assert fingerprint(uncased_pieces, True, True, True) == same
    assert len(same) == 16
    assert int(same, 16) >= 0


def test_reads_every_kind_of_text_file(tmp_path):
    path = tmp_path / "vocab.txt"
    for content in ("a\n##é\n", "a\n##é", "a\r\n##é\r\n", "\ufeffa\n##é\n\n"):
        path.write_bytes(content.encode())
        assert read_vocabulary(path) == ["a", "##é"]
    # Line ends for other programs; at the end of a line they are no part of the piece, as blanks.
    write_vocabulary(path, ["a", "\u2028", "##\u2028a", "\x85", "b \t\u3000", " c"])
    assert read_vocabulary(path) == ["a", "", "##\u2028a", "", "b", " c"]


def test_looks_lowercased():
    assert looks_lowercased(["[CLS]", "<S>", "the", "##é", "中"])
    assert not looks_lowercased(["[CLS]", "the", "##É"])
    assert not looks_lowercased(["[CLS]", "A"])
