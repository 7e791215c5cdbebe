"""Gemma's and mmBERT's BPE with pieces for bytes: by eye, and against the library."""

import json

import pytest
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from bert_jax.data.windows.words import WordWindows
from bert_jax.errors import UserError
from bert_jax.tokenization import load_tokenizer
from bert_jax.tokenization.byte_fallback_bpe import ByteFallbackBPETokenizer
from bert_jax.tokenization.interface import BYTE_LEVEL_BPE

SPECIALS = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
LETTERS = list("▁thecasoilmндеякो海é")
MERGES = ["t h", "th e", "▁ the", "▁ c", "a t", "▁c at", "▁ ▁", "н е", "▁ не", "▁ 海"]
VOCABULARY = [*SPECIALS, *BYTES, *LETTERS, *(merge.replace(" ", "") for merge in MERGES)]
TEXTS = [
    "the cat",
    " the  cat   the",
    "не 海 é é को",
    "🙂 the\nqu\tж<mask> cat",
    "  <mask>  the▁cat <bos>",
    "",
]


@pytest.fixture
def peer():
    """The tokenizer of the library, as in the files of mmBERT."""
    ids = {piece: number for number, piece in enumerate(VOCABULARY)}
    library = tokenizers.Tokenizer(
        models.BPE(
            vocab=ids,
            merges=[tuple(merge.split(" ")) for merge in MERGES],
            unk_token="<unk>",
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    library.normalizer = normalizers.Replace(" ", "▁")
    library.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    library.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    library.post_processor = processors.TemplateProcessing(
        single="<bos> $A <eos>",
        pair="<bos> $A <eos> $B:1 <eos>:1",
        special_tokens=[("<bos>", 2), ("<eos>", 1)],
    )
    library.add_special_tokens([each for each in SPECIALS if each != "<mask>"])
    library.add_special_tokens([tokenizers.AddedToken("<mask>", lstrip=True)])
    return library


@pytest.fixture
def directory(tmp_path, peer):
    peer.save(str(tmp_path / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **{f"{token[1:-1]}_token": token for token in SPECIALS},
        "cls_token": "<bos>",
        "sep_token": "<eos>",
        "model_input_names": ["input_ids", "attention_mask"],
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    return tmp_path


def test_ids_and_offsets_are_those_of_the_library_also_when_saved(directory, peer, tmp_path):
    tokenizer = load_tokenizer(directory, kind=BYTE_LEVEL_BPE)
    tokenizer.save(tmp_path / "saved", max_length=8192)
    again = load_tokenizer(tmp_path / "saved", kind=BYTE_LEVEL_BPE)
    assert again.fingerprint() == tokenizer.fingerprint()
    expected = peer.encode_batch(TEXTS)
    for each in (tokenizer, again):
        for encoding, other in zip(each.encode_batch(TEXTS), expected, strict=True):
            for field in ("ids", "tokens", "offsets", "special_tokens_mask"):
                assert getattr(encoding, field) == getattr(other, field)
        assert each.special_ids.cls == each.special_ids.bos == 2
        assert each.encode_batch(["the"], ["cat"])[0].type_ids == [0] * 6


def test_pieces_by_eye(directory):
    tokenizer = load_tokenizer(directory, kind=BYTE_LEVEL_BPE)
    (first, second) = tokenizer.encode_batch(["the cat", " the  é🙂"], add_special_tokens=False)
    assert first.tokens == ["the", "▁cat"]
    assert second.tokens == ["▁the", "▁▁", "é", "<0xF0>", "<0x9F>", "<0x99>", "<0x82>"]
    assert tokenizer.decode(second.ids) == " the  é🙂"
    # Sentences of a corpus come from within a text, and a literal "<mask>" is text.
    assert tokenizer.encode_sentences(["the"]) == [[tokenizer.token_to_id("▁the")]]
    assert 4 not in tokenizer.encode_sentences(["<mask>"])[0]


def test_words_given_in_advance_have_the_space_before_them(directory):
    tokenizer = load_tokenizer(directory, kind=BYTE_LEVEL_BPE)
    (words,) = tokenizer.encode_words(["the cat the"])
    assert words.tokens == ["▁the", "▁cat", "▁the"]
    assert words.offsets == [(0, 3), (3, 7), (7, 11)]
    ((window,),) = WordWindows(tokenizer, 12)([["the", "cat", "é"]])
    assert (window.words, window.positions) == ((0, 1, 2), (1, 2, 4))
    assert window.tokens == ["<bos>", "▁the", "▁cat", "▁", "é", "<eos>"]


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (
            "normalizer",
            None,
            "the normalizer is None; of BPE with byte_fallback only Gem",
        ),
        ("pre_tokenizer", {"type": "Whitespace"}, "the pre_tokenizer 'Whitespace' is not support"),
        ("model.fuse_unk", False, "fuse_unk of the BPE model is False; with byte_fallback only Tr"),
        ("model.dropout", 0.1, "dropout of the BPE model is 0.1; with byte_fallback only None is"),
        ("model.ignore_merges", True, "ignore_merges of the BPE model is True; with byte_fallbac"),
        ("model.vocab.<0x41>", None, "the id of '<0x41>' is None; give a number"),
    ],
)
def test_other_rules_are_refused(directory, path, value, message):
    file = directory / "tokenizer.json"
    content = json.loads(file.read_text())
    *parents, last = path.split(".")
    target = content
    for key in parents:
        target = target[key]
    target[last] = value
    file.write_text(json.dumps(content))
    with pytest.raises(UserError, match=message):
        load_tokenizer(directory)


def test_every_byte_has_a_piece():
    pieces = {piece: number for number, piece in enumerate(VOCABULARY) if piece != "<0x41>"}
    with pytest.raises(UserError, match="the vocabulary: there is no piece <0x41> for a byte"):
        ByteFallbackBPETokenizer(pieces, [])


@pytest.mark.slow
@pytest.mark.parametrize("class_name", ["PreTrainedTokenizerFast", "GemmaTokenizer"])
def test_transformers_has_the_same_ids_of_both(directory, tmp_path, class_name):
    transformers = pytest.importorskip("transformers")
    config = directory / "tokenizer_config.json"
    config.write_text(config.read_text().replace("PreTrainedTokenizerFast", class_name))
    tokenizer = load_tokenizer(directory)
    tokenizer.save(tmp_path / "saved")
    for path in (directory, tmp_path / "saved"):
        peer = transformers.AutoTokenizer.from_pretrained(path)
        for text, encoding in zip(TEXTS, tokenizer.encode_batch(TEXTS), strict=True):
            assert peer(text)["input_ids"] == encoding.ids
            assert peer.decode(encoding.ids, skip_special_tokens=True) == tokenizer.decode(
                encoding.ids
            )
