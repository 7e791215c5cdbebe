"""DeBERTa's tokenizer against the library SentencePiece, in its forms of files."""

import base64
import io
import json

import pytest
import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from bert_jax.errors import UserError
from bert_jax.families.family import find_family
from bert_jax.tokenization import load_tokenizer
from bert_jax.tokenization.deberta_v2 import DebertaV2Tokenizer

TEXTS = [
    "The cat sat on the mat, and the dog sat on the cat.",
    "A café in the street:  two   spaces, a\ttab, the ﬁnal １２ and ¿qué?",
    "the zebra \u2603 jumped",
    "``quotes'' and 9,",
    " ",
]


@pytest.fixture(scope="module")
def model() -> bytes:
    """A model with DeBERTa's first pieces."""
    content = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS[:4] * 20),
        model_writer=content,
        vocab_size=60,
        hard_vocab_limit=False,
        pad_id=0,
        bos_id=1,
        eos_id=2,
        unk_id=3,
        pad_piece="[PAD]",
        bos_piece="[CLS]",
        eos_piece="[SEP]",
        unk_piece="[UNK]",
        minloglevel=2,
    )
    return content.getvalue()


@pytest.fixture
def processor(model):
    processor = sentencepiece.SentencePieceProcessor()
    processor.load_from_serialized_proto(model)
    return processor


@pytest.fixture
def folder(model, tmp_path):
    """The files of a published model."""
    (tmp_path / "spm.model").write_bytes(model)
    config = {"do_lower_case": False, "vocab_type": "spm"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    return tmp_path


def definition_of(model: bytes) -> dict:
    """The `tokenizer.json` that transformers 4 makes of the model."""
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(model)
    table = base64.b64encode(proto.normalizer_spec.precompiled_charsmap).decode()
    size = len(proto.pieces)
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    named = {"[PAD]": 0, "[CLS]": 1, "[SEP]": 2, "[UNK]": 3, "[MASK]": size}
    special = {
        name: {"id": name, "ids": [named[name]], "tokens": [name]} for name in ("[CLS]", "[SEP]")
    }

    def token(name, type_id):
        return {"SpecialToken": {"id": name, "type_id": type_id}}

    def text(name, type_id):
        return {"Sequence": {"id": name, "type_id": type_id}}

    single = [token("[CLS]", 0), text("A", 0), token("[SEP]", 0)]
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": number, "content": name, **flags, "special": True}
            for name, number in named.items()
        ],
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {"type": "Strip", "strip_left": True, "strip_right": True},
                {"type": "Precompiled", "precompiled_charsmap": table},
                {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
            ],
        },
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [metaspace]},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": single,
            "pair": [*single, text("B", 1), token("[SEP]", 1)],
            "special_tokens": special,
        },
        "decoder": metaspace,
        "model": {
            "type": "Unigram",
            "unk_id": 3,
            "vocab": [[piece.piece, piece.score] for piece in proto.pieces],
            "byte_fallback": False,
        },
    }


def test_ids_are_those_of_the_file_and_the_mask_comes_after_them(folder, processor):
    tokenizer = load_tokenizer(folder, kind="deberta_v2")
    assert isinstance(tokenizer, DebertaV2Tokenizer)
    size = processor.get_piece_size()
    ids = tokenizer.special_ids
    assert (ids.pad, ids.cls, ids.sep, ids.unk, ids.mask) == (0, 1, 2, 3, size)
    assert tokenizer.vocab_size == size + 1
    for text, encoding in zip(TEXTS, tokenizer.encode_batch(TEXTS), strict=True):
        assert encoding.ids == [1, *processor.encode(text), 2]
    assert tokenizer.encode_sentences(TEXTS) == processor.encode(TEXTS)
    (pair,) = tokenizer.encode_batch(["the cat"], ["a dog"])
    first, second = processor.encode(["the cat", "a dog"])
    assert pair.ids == [1, *first, 2, *second, 2]
    assert pair.type_ids == [0] * (len(first) + 2) + [1] * (len(second) + 1)
    (masked,) = tokenizer.encode_batch(["the [MASK] sat"])
    assert masked.ids == [1, *processor.encode("the"), size, *processor.encode("sat"), 2]


def test_saved_files_load_to_the_same_tokenizer(folder, tmp_path):
    tokenizer = load_tokenizer(folder, kind="deberta_v2")
    tokenizer.save(tmp_path / "again")
    again = load_tokenizer(tmp_path / "again")  # its files name the class
    assert isinstance(again, DebertaV2Tokenizer)
    assert again.fingerprint() == tokenizer.fingerprint()
    assert (tmp_path / "again" / "spm.model").read_bytes() == (folder / "spm.model").read_bytes()
    albert = load_tokenizer(folder)  # the default for a .model file
    assert albert.fingerprint() != tokenizer.fingerprint()
    more = tokenizer.with_words(["<user>"], whole=True)
    more.save(tmp_path / "more")
    (encoding,) = load_tokenizer(tmp_path / "more").encode_batch(["the <user> sat"])
    assert tokenizer.vocab_size in encoding.ids


@pytest.mark.parametrize("with_class", [False, True])
def test_tokenizer_json_alone(model, processor, with_class, tmp_path):
    (tmp_path / "tokenizer.json").write_text(json.dumps(definition_of(model)))
    named = {"tokenizer_class": "DebertaV2Tokenizer"} if with_class else {}
    names = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
    config = named | {f"{role}_token": name for role, name in names.items()}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    tokenizer = load_tokenizer(tmp_path, kind="deberta_v2")
    size = processor.get_piece_size()
    ids = tokenizer.special_ids
    assert (ids.pad, ids.cls, ids.sep, ids.unk, ids.mask) == (0, 1, 2, 3, size)
    for text, encoding in zip(TEXTS, tokenizer.encode_batch(TEXTS), strict=True):
        assert encoding.ids == [1, *processor.encode(text), 2], text
    tokenizer.save(tmp_path / "again")
    again = load_tokenizer(tmp_path / "again", kind="deberta_v2")
    assert again.fingerprint() == tokenizer.fingerprint()


def test_the_family_takes_the_model_before_a_conversion_of_it(folder, model, tmp_path):
    (folder / "tokenizer.json").write_text(json.dumps(definition_of(model)))
    family = find_family("deberta-v2")
    assert isinstance(family.load_tokenizer(folder), DebertaV2Tokenizer)
    (tmp_path / "vocab").mkdir()
    (tmp_path / "vocab" / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n")
    with pytest.raises(UserError, match=r"a wordpiece tokenizer, but the model needs .*spm.model"):
        family.load_tokenizer(tmp_path / "vocab")


@pytest.mark.parametrize("key", ["do_lower_case", "split_by_punct"])
def test_rules_of_no_published_model_are_refused(folder, key):
    (folder / "tokenizer_config.json").write_text(json.dumps({key: True}))
    with pytest.raises(UserError, match=f"tokenizer_config.json: {key} is true; only false is"):
        load_tokenizer(folder, kind="deberta_v2")


@pytest.mark.slow
def test_transformers_reads_the_saved_files(folder, tmp_path):
    """Where the table of the model changes nothing: version 5 does not use it."""
    transformers = pytest.importorskip("transformers")
    tokenizer = load_tokenizer(folder, kind="deberta_v2")
    tokenizer.save(tmp_path / "saved")
    other = transformers.AutoTokenizer.from_pretrained(tmp_path / "saved")
    assert type(other).__name__ == "DebertaV2Tokenizer"
    texts = [TEXTS[0], TEXTS[2], "the [MASK] sat"]
    expected = [encoding.ids for encoding in tokenizer.encode_batch(texts)]
    assert other(texts)["input_ids"] == expected
    # Its own tokenizer.json, alone.
    other.save_pretrained(tmp_path / "of_transformers")
    again = load_tokenizer(tmp_path / "of_transformers", kind="deberta_v2")
    for text, encoding in zip(TEXTS, again.encode_batch(TEXTS), strict=True):
        assert encoding.ids == other(text)["input_ids"], text
