"""The SentencePiece models of CamemBERT and XLM-R: by eye, and against the library."""

import base64
import json

import pytest
import sentencepiece
import tokenizers
from sentencepiece import sentencepiece_model_pb2
from tokenizers import models, normalizers, pre_tokenizers

from bert_jax.errors import UserError
from bert_jax.tokenization import SpecialIds, UnigramTokenizer, load_tokenizer
from bert_jax.tokenization.interface import CAMEMBERT, SENTENCEPIECE, XLM_ROBERTA
from tests.tokenization.folders import trained

MODEL_FILE = "sentencepiece.bpe.model"
CLASSES = {CAMEMBERT: "CamembertTokenizer", XLM_ROBERTA: "XLMRobertaTokenizer"}
TEXTS = [
    "the cat sat on the mat",
    "  le  chat, \u00a0 caf\u00e9 cafe\u0301 \ufb01n Ⅷ \u3000中国🙂",
    "a <mask> b  <mask>,<mask>c",
    "<s> the </s><pad><unk>",
    "▁the ▁ ▁",
    "",
    " \t\n",
]


LINES = ["the cat sat on the mat", "le chat, un café: fin"] * 9


@pytest.fixture(scope="module")
def content() -> bytes:
    """A model with SentencePiece's own first ids: <unk> 0, <s> 1, </s> 2."""
    return trained(LINES, vocab_size=24)


def pieces_of(content):
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(content)
    return [(p.piece, p.score) for p in proto.pieces], proto.normalizer_spec.precompiled_charsmap


def peer_of(pieces, unk_id, normalizer):
    peer = tokenizers.Tokenizer(models.Unigram(pieces, unk_id=unk_id, byte_fallback=False))
    peer.normalizer = normalizer
    steps = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    peer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    return peer


def assert_same(encodings, expected):
    for encoding, other in zip(encodings, expected, strict=True):
        for field in ("ids", "tokens", "offsets", "word_ids"):
            assert getattr(encoding, field) == getattr(other, field)


@pytest.fixture
def load(tmp_path, content):
    (tmp_path / MODEL_FILE).write_bytes(content)

    def load_as(kind, path=tmp_path, **arguments):
        return load_tokenizer(path, kind=kind, **arguments)

    return load_as


def test_the_ids_are_those_of_the_families(load, content):
    ids = sentencepiece.SentencePieceProcessor(model_proto=content)
    own = ids.encode("the cat sat")
    for kind, first, special, shift in (
        (
            *(CAMEMBERT, "<s>NOTUSED <pad> </s>NOTUSED <unk> <unk>NOTUSED <s> </s>"),
            *(SpecialIds(pad=1, unk=3, cls=5, sep=6, mask=28, bos=5, eos=6), 4),
        ),
        (
            *(XLM_ROBERTA, "<s> <pad> </s> <unk>"),
            *(SpecialIds(pad=1, unk=3, cls=0, sep=2, mask=25, bos=0, eos=2), 1),
        ),
    ):
        tokenizer = load(kind)
        assert [tokenizer.id_to_token(i) for i, _ in enumerate(first.split())] == first.split()
        assert tokenizer.special_ids == special
        for piece in range(3, 24):
            assert tokenizer.token_to_id(ids.id_to_piece(piece)) == piece + shift
        assert tokenizer.encode_sentences(["the cat sat"]) == [[i + shift for i in own]]


@pytest.mark.parametrize("kind", CLASSES)
def test_ids_offsets_and_words_are_those_of_the_library(load, content, kind):
    scores, charsmap = pieces_of(content)
    first = ["<s>", "<pad>", "</s>", "<unk>"]
    pieces = [*((piece, 0.0) for piece in first), *scores[3:], ("<mask>", 0.0)]
    if kind == CAMEMBERT:
        first = ["<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>"]
        pieces = [(piece, 0.0) for piece in first]
        pieces += [("<unk>NOTUSED", -100), *scores[1:], ("<mask>", 0.0)]
    peer = peer_of(pieces, 3, normalizers.Precompiled(charsmap))
    peer.add_special_tokens(["<s>", "</s>", "<unk>", "<pad>"])
    peer.add_special_tokens([tokenizers.AddedToken("<mask>", lstrip=True)])

    tokenizer = load(kind)

    encodings = tokenizer.encode_batch(TEXTS, add_special_tokens=False)
    assert_same(encodings, peer.encode_batch(TEXTS))
    assert tokenizer.encode_batch(["▁"], ["a"])[0].tokens[0] == "<s>"
    assert tokenizer.encode_batch(["a"], ["b"])[0].type_ids == [0] * 8  # <s>▁ a</s></s>▁ b</s>


def test_sentences_get_the_ids_of_batches(load):
    tokenizer = load(XLM_ROBERTA)
    plain = [text for text in TEXTS if "<" not in text]
    encoded = tokenizer.encode_batch(plain, add_special_tokens=False)
    assert tokenizer.encode_sentences(plain) == [encoding.ids for encoding in encoded]


def test_words_begin_at_the_marker(load):
    tokenizer = load(CAMEMBERT)
    continuations = tokenizer.continuations()
    assert not continuations[[*tokenizer.special_ids.known(), tokenizer.token_to_id("▁")]].any()
    assert continuations[tokenizer.token_to_id("a")]


@pytest.mark.parametrize("kind", CLASSES)
def test_saved_files_give_the_same_tokenizer(load, kind, tmp_path):
    tokenizer = load(kind)
    tokenizer.save(tmp_path / "saved", max_length=64)

    config = json.loads((tmp_path / "saved" / "tokenizer_config.json").read_text())
    assert config["tokenizer_class"] == CLASSES[kind]
    assert config["model_max_length"] == 64
    alone = (tmp_path / "saved" / "tokenizer.json").rename(tmp_path / "tokenizer.json")
    # Without a family, as for the tokenizer of a corpus, a tokenizer.json tells its ids.
    for again in (load(kind, alone), load_tokenizer(alone)):
        assert isinstance(again, UnigramTokenizer)
        assert again.fingerprint() == tokenizer.fingerprint()
        assert again.encode_batch(TEXTS, TEXTS[::-1]) == tokenizer.encode_batch(TEXTS, TEXTS[::-1])
    alone.unlink()
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": CLASSES[kind]}))
    assert load_tokenizer(tmp_path).fingerprint() == tokenizer.fingerprint()


def with_table(content, table):
    """A .model file with another table of normalisation."""
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(content)
    proto.normalizer_spec.precompiled_charsmap = table
    return proto.SerializeToString()


def test_a_damaged_table_of_normalisation_is_an_error_of_one_line(content, tmp_path, capfd):
    """The libraries end the process, print a panic, or read beyond the table."""
    (tmp_path / MODEL_FILE).write_bytes(content)
    load_tokenizer(tmp_path, kind=XLM_ROBERTA).save(tmp_path / "saved")
    path = tmp_path / "saved" / "tokenizer.json"
    definition = json.loads(path.read_text())
    _, table = pieces_of(content)
    for damaged in (table[:5000], table[:4] + b"\x00\xfc\xff\x7f" + table[8:]):
        (tmp_path / MODEL_FILE).write_bytes(with_table(content, damaged))
        definition["normalizer"]["precompiled_charsmap"] = base64.b64encode(damaged).decode()
        path.write_text(json.dumps(definition))
        for folder, kind, name in (
            (path.parent, XLM_ROBERTA, "tokenizer.json"),
            (tmp_path, XLM_ROBERTA, MODEL_FILE),
            (tmp_path, SENTENCEPIECE, MODEL_FILE),
        ):
            with pytest.raises(UserError, match=f"{name}: the table of normalisation .* damaged"):
                load_tokenizer(folder, kind=kind).encode_batch(["\ufb01n"])
    assert "panicked" not in capfd.readouterr().err


def test_a_tokenizer_json_of_albert_with_its_cleaning(content, tmp_path):
    """The files that transformers saves; the peer is the library itself."""
    scores, charsmap = pieces_of(content)
    pieces = [("<pad>", 0.0), ("<unk>", 0.0), ("[CLS]", 0.0), ("[SEP]", 0.0), ("[MASK]", 0.0)]
    steps = [
        *(normalizers.Replace("``", '"'), normalizers.Replace("''", '"')),
        *(normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()),
        *(normalizers.Precompiled(charsmap),),
    ]
    peer = peer_of(pieces + scores[3:], 1, normalizers.Sequence(steps))
    peer.add_special_tokens(["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"])
    peer.save(str(tmp_path / "tokenizer.json"))

    tokenizer = load_tokenizer(tmp_path, kind=SENTENCEPIECE)
    tokenizer.save(tmp_path / "again")

    texts = [*TEXTS, "LE CHAT", "a [MASK] b  [MASK]", "``caf\u00e9''"]
    for each in (tokenizer, load_tokenizer(tmp_path / "again", kind=SENTENCEPIECE)):
        assert_same(each.encode_batch(texts, add_special_tokens=False), peer.encode_batch(texts))
        assert each.fingerprint() == tokenizer.fingerprint()
        assert each.special_ids == SpecialIds(pad=0, unk=1, cls=2, sep=3, mask=4)
    config = json.loads((tmp_path / "again" / "tokenizer_config.json").read_text())
    assert (config["tokenizer_class"], config["keep_accents"]) == ("AlbertTokenizer", False)
    with pytest.raises(UserError, match="a sentencepiece tokenizer, but the model needs the Sent"):
        load_tokenizer(tmp_path, kind=XLM_ROBERTA)
    # Where the class is named, its rules count, not the file's.
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "AlbertTokenizer", "do_lower_case": False})
    )
    cased = json.loads(load_tokenizer(tmp_path)._library.to_str())["normalizer"]["normalizers"]
    kinds = ["Replace", "Replace", "NFKD", "StripAccents", "Precompiled"]
    assert [step["type"] for step in cased] == kinds


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff", "not a SentencePiece model"),
        (trained(LINES, vocab_size=24, model_type="bpe"), "Tokenizer needs a unigram model"),
    ],
)
def test_other_models_are_refused(tmp_path, content, message):
    path = tmp_path / MODEL_FILE
    path.write_bytes(content)
    with pytest.raises(UserError, match=message) as error:
        load_tokenizer(tmp_path, kind=CAMEMBERT)
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)
