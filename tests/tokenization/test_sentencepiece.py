import json

import hypothesis
import hypothesis.strategies as st
import pytest
import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from bert_jax.errors import UserError
from bert_jax.tokenization import (
    SentencePieceTokenizer,
    SpecialIds,
    load_tokenizer,
    train_sentencepiece,
)
from bert_jax.tokenization.cleaning import TextCleaner, has_accents
from tests.tokenization.folders import trained


@pytest.fixture
def cat_model(cat_tokenizer, tmp_path) -> bytes:
    cat_tokenizer.save(tmp_path)
    return (tmp_path / "spiece.model").read_bytes()


def pieces(encoding):
    """(token, offsets, word id) of the text, without [CLS] and [SEP]."""
    return list(zip(encoding.tokens, encoding.offsets, encoding.word_ids, strict=True))[1:-1]


def test_encodes_one_text_and_cuts_a_pair(cat_tokenizer):
    (encoding,) = cat_tokenizer.encode_batch(["The cats"])

    assert encoding.tokens == ["[CLS]", "▁the", "▁cat", "s", "[SEP]"]
    assert encoding.ids == [cat_tokenizer.token_to_id(token) for token in encoding.tokens]
    assert encoding.type_ids == [0, 0, 0, 0, 0]
    assert encoding.offsets == [(0, 0), (0, 3), (4, 7), (7, 8), (0, 0)]
    assert encoding.word_ids == [None, 0, 1, 1, None]
    assert encoding.special_tokens_mask == [1, 0, 0, 0, 1]
    (pair,) = cat_tokenizer.encode_batch(["the cat sat"], ["the dog"], max_length=7)
    assert pair.tokens == ["[CLS]", "▁the", "▁cat", "[SEP]", "▁the", "▁dog", "[SEP]"]
    assert pair.type_ids == [0, 0, 0, 0, 1, 1, 1]
    assert pair.word_ids == [None, 0, 1, None, 0, 1, None]


def test_offsets_are_those_of_the_original_text(cat_tokenizer):
    texts = [
        "  the   cat",  # spaces are squeezed
        "caf\u00e9 cafe\u0301",  # two characters become one
        "\ufb01ne",  # one character (the ligature fi) becomes two
        "``cat''",  # two characters become one: a quote, unknown here
        "🙂 \u3000cat",
    ]

    encoded = [pieces(encoding) for encoding in cat_tokenizer.encode_batch(texts)]

    assert encoded[0] == [("▁the", (2, 5), 0), ("▁cat", (8, 11), 1)]
    assert encoded[1] == [("▁café", (0, 4), 0), ("▁café", (5, 10), 1)]
    assert encoded[2] == [
        ("▁", (0, 1), 0),  # a single marker has the offsets of the first character of its word
        ("f", (0, 1), 0),
        ("i", (0, 1), 0),
        ("n", (1, 2), 0),
        ("e", (2, 3), 0),
    ]
    assert encoded[3] == [
        ("▁", (0, 1), 0),
        ("<unk>", (0, 1), 0),
        ("c", (2, 3), 0),
        ("at", (3, 5), 0),
        ("<unk>", (5, 6), 0),
    ]
    assert encoded[4] == [("▁", (0, 1), 0), ("<unk>", (0, 1), 0), ("▁cat", (3, 6), 1)]


def test_what_the_model_reads_as_a_space_or_not_at_all_is_no_part_of_a_word(cat_tokenizer):
    """As in Hugging Face's tokenizer; U+0085 is a space for it and for google-research/albert."""
    texts = ["the \u200b cat", "the\x01 \u2581cat", "the\x85cat", "\x85"]

    encoded = [pieces(encoding) for encoding in cat_tokenizer.encode_batch(texts)]

    assert encoded == [
        [("▁the", (0, 3), 0), ("▁cat", (6, 9), 1)],
        [("▁the", (0, 3), 0), ("▁cat", (6, 9), 1)],
        [("▁the", (0, 3), 0), ("▁cat", (4, 7), 1)],
        [],
    ]
    (ids,) = cat_tokenizer.encode_sentences(["the\x85cat"])
    assert [cat_tokenizer.id_to_token(i) for i in ids] == ["▁the", "▁cat"]


def test_a_literal_mask_is_text_even_where_the_model_would_find_it():
    symbols = ["[PAD]", "[CLS]", "[SEP]", "[MASK]"]
    options = {"vocab_size": 26, "model_type": "bpe", "user_defined_symbols": symbols}
    model = trained(["the mask sat", "a dog"] * 5, **options)
    tokenizer = SentencePieceTokenizer(model, lowercase=False)
    mask = tokenizer.special_ids.mask

    assert mask in tokenizer.encode_batch(["the [MASK]"])[0].ids
    assert mask not in tokenizer.encode_sentences(["the [MASK]"])[0]


def albert_pieces(processor, text):
    """`encode_pieces` of google-research/albert, tokenization.py, as published."""
    new_pieces = []
    for piece in processor.encode_as_pieces(text):
        if len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit():
            cur_pieces = processor.encode_as_pieces(piece[:-1].replace("▁", ""))
            if piece[0] != "▁" and cur_pieces[0][0] == "▁":
                if len(cur_pieces[0]) == 1:
                    cur_pieces = cur_pieces[1:]
                else:
                    cur_pieces[0] = cur_pieces[0][1:]
            cur_pieces.append(piece[-1])
            new_pieces.extend(cur_pieces)
        else:
            new_pieces.append(piece)
    return new_pieces


@pytest.mark.parametrize(("model_type", "vocab_size"), [("bpe", 60), ("unigram", 32)])
def test_a_comma_after_a_digit_is_a_piece_of_its_own_as_in_albert(model_type, vocab_size):
    lines = ["in 2019, and 1,000 of 99, or 7, 12, and 345,678", "1, 9, 42, 999,000 or 7,"] * 9
    model = trained(
        lines,
        vocab_size=vocab_size,
        model_type=model_type,
        split_by_number=False,
        split_by_unicode_script=False,
        control_symbols=["<pad>", "[CLS]", "[SEP]", "[MASK]"],
    )
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    tokenizer = SentencePieceTokenizer(model)
    raw = set()
    for text in ["in 2019, 1,000 or 99,", "a 7,9 99,99,, ,1 0,", "345,678 12, 7, 1,", "9,"]:
        (encoding,) = tokenizer.encode_batch([text], add_special_tokens=False)
        pieces = albert_pieces(processor, text)
        raw |= {piece for piece in processor.encode_as_pieces(text) if piece not in pieces}
        assert encoding.ids == [processor.piece_to_id(piece) for piece in pieces]
        assert tokenizer.encode_sentences([text]) == [encoding.ids]
        for piece, (start, end) in zip(pieces, encoding.offsets, strict=True):
            expected = piece.removeprefix("▁") or text[start]
            assert text[start:end] == expected
    (encoding,) = tokenizer.encode_batch(["1 \U0001f102"], add_special_tokens=False)  # "1,"
    assert encoding.offsets[-2:] == [(2, 3), (2, 3)]
    assert any(piece.startswith("▁") for piece in raw), raw
    assert any(not piece.startswith("▁") for piece in raw), raw


@hypothesis.given(
    text=st.text(
        st.one_of(
            st.sampled_from("the cat sat on café ``''[MASK]<unk>\u3000\u200b\u0301\ufb01ⅧİΣが가"),
            st.characters(exclude_categories=["Cs"]),
        )
    ),
    lowercase=st.booleans(),
    keep_accents=st.booleans(),
)
@hypothesis.settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)
def test_offsets_lie_in_the_text_and_ids_agree(cat_model, text, lowercase, keep_accents):
    tokenizer = SentencePieceTokenizer(cat_model, lowercase=lowercase, keep_accents=keep_accents)
    encoding = tokenizer.encode_batch([text], add_special_tokens=False)[0]

    starts = [start for start, _ in encoding.offsets]
    assert starts == sorted(starts)
    assert all(0 <= start < end <= len(text) for start, end in encoding.offsets)
    if not any(token in text for token in ("[CLS]", "[SEP]", "[MASK]", "<pad>", "<unk>")):
        assert tokenizer.encode_sentences([text]) == [encoding.ids]


def test_ids_pieces_and_text(cat_tokenizer):
    (encoding,) = cat_tokenizer.encode_batch(["The cat [MASK] on the mat"])
    continuations = cat_tokenizer.continuations()

    assert cat_tokenizer.decode(encoding.ids) == "the cat on the mat"
    whole = cat_tokenizer.decode(encoding.ids, skip_special_tokens=False)
    assert whole == "[CLS] the cat [MASK] on the mat [SEP]"
    assert cat_tokenizer.vocab_size == 42
    assert cat_tokenizer.special_ids == SpecialIds(pad=0, unk=1, cls=2, sep=3, mask=4)
    assert (cat_tokenizer.id_to_token(4), cat_tokenizer.token_to_id("[MASK]")) == ("[MASK]", 4)
    assert cat_tokenizer.token_to_id("absent") is None
    assert (continuations.dtype, continuations.shape) == (bool, (42,))
    assert not continuations[[*range(5), cat_tokenizer.token_to_id("▁the")]].any()
    assert continuations[cat_tokenizer.token_to_id("s")]
    with pytest.raises(UserError, match="words: a SentencePiece model cannot take new words"):
        cat_tokenizer.with_words(["dogs"])


def test_saved_files_load_to_the_same_tokenizer(cat_model, tmp_path):
    tokenizer = SentencePieceTokenizer(cat_model, lowercase=False, keep_accents=False)
    tokenizer.save(tmp_path / "model")

    loaded = load_tokenizer(tmp_path / "model")

    text = "The CAFÉ cat [MASK]"
    assert loaded.encode_batch([text]) == tokenizer.encode_batch([text])
    assert loaded.fingerprint() == tokenizer.fingerprint()
    config = json.loads((tmp_path / "model" / "tokenizer_config.json").read_text())
    assert config == {
        "tokenizer_class": "AlbertTokenizer",
        "do_lower_case": False,
        "keep_accents": False,
        "pad_token": "<pad>",
        "unk_token": "<unk>",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "mask_token": "[MASK]",
    }


def test_the_fingerprint_shows_model_and_cleaning(cat_model, cat_tokenizer):
    others = [
        SentencePieceTokenizer(cat_model, lowercase=False, keep_accents=True),
        SentencePieceTokenizer(cat_model, lowercase=True, keep_accents=False),
        train_sentencepiece(["the cat sat"] * 5, vocab_size=14, lowercase=True),
    ]

    fingerprints = {tokenizer.fingerprint() for tokenizer in [cat_tokenizer, *others]}
    assert len(fingerprints) == 4
    assert {len(fingerprint) for fingerprint in fingerprints} == {16}


def test_what_is_no_model_is_refused(cat_model):
    no_text = cat_model.replace("é".encode(), b"\xe4A")
    for content, message in (
        (b"", "not a SentencePiece model"),
        (b"no model at all", "not a SentencePiece model"),
        (trained(["the cat sat"] * 5, vocab_size=13, pad_id=3), r"the vocabulary has no \[CLS\];"),
        (no_text, r"the piece b'.*\\xe4A.*' is not UTF-8; copy"),
    ):
        with pytest.raises(UserError, match=rf"^x\.model: {message}"):
            SentencePieceTokenizer(content, origin="x.model")


def test_a_model_that_is_cut_between_pieces_is_refused(cat_model, tmp_path):
    """Each beginning of the pieces is itself a message of protobuf, and an empty file, too."""
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(cat_model)
    for kept in (0, 1, 20, len(proto.pieces)):
        part = sentencepiece_model_pb2.ModelProto(pieces=proto.pieces[:kept])
        (tmp_path / "spiece.model").write_bytes(part.SerializeToString())
        with pytest.raises(UserError, match=r"spiece\.model: .* is cut off: its last parts"):
            load_tokenizer(tmp_path / "spiece.model")


@pytest.mark.parametrize(
    ("lowercase", "keep_accents", "cleaned"),
    [
        (False, True, 'Él "ΣΟΣ" ½'),
        (True, True, 'él "σοσ" ½'),  # letter by letter: no final ς
        (False, False, 'El "ΣΟΣ" 1⁄2'),
        (True, False, 'el "σοσ" 1⁄2'),
    ],
)
def test_clean(lowercase, keep_accents, cleaned):
    cleaner = TextCleaner(lowercase=lowercase, keep_accents=keep_accents)

    assert cleaner.clean("Él ``ΣΟΣ'' ½") == cleaned


def test_cleaned_characters_point_into_the_text():
    cleaner = TextCleaner(lowercase=True, keep_accents=False)

    assert cleaner.clean_with_origins("``É½e\u0301x") == ('"e1⁄2ex', [0, 2, 3, 3, 3, 4, 6])
    assert cleaner.clean_with_origins("A b") == ("a b", range(3))
    assert has_accents(["▁the", "é"])
    assert not has_accents(["▁the", "▁", "ß", "[CLS]", "ı"])
