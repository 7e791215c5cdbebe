"""The tokenizer of Marian's translation models, by eye."""

import json

import pytest

from bert_jax.errors import UserError
from bert_jax.tokenization import SpecialIds, load_tokenizer
from bert_jax.tokenization.interface import MARIAN, T5
from tests.tokenization.folders import trained

# The models have single letters and "▁"; "w" is only in the target, "ß" only in the source.
ENGLISH, GERMAN = ["the ß"] * 9, ["wo"] * 9
LETTERS = [*"▁theßwo"]
IDS = {"</s>": 0, "<unk>": 1, ">>de<<": 2, **{letter: 3 + i for i, letter in enumerate(LETTERS)}}
V = len(IDS)  # ▁ 3, t 4, h 5, e 6, ß 7, w 8, o 9, <pad> 10


def write(path, ids, targets=None, **config):
    path.mkdir()
    for name, lines, size in (("source", ENGLISH, 8), ("target", GERMAN, 6)):
        (path / f"{name}.spm").write_bytes(trained(lines, vocab_size=size, hard_vocab_limit=False))
    files = {"vocab.json": ids, "target_vocab.json": targets, "tokenizer_config.json": config}
    for name, content in files.items():
        if content is not None:
            (path / name).write_text(json.dumps(content))
    return path


@pytest.fixture
def tokenizer(tmp_path):
    return load_tokenizer(write(tmp_path / "marian", IDS | {"<pad>": V}), kind=MARIAN)


def test_sources_and_targets_have_their_own_model_and_the_same_ids(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "saved")
    for each in (tokenizer, load_tokenizer(tmp_path / "saved")):
        assert each.special_ids == SpecialIds(
            pad=10, unk=1, cls=None, sep=None, mask=None, bos=None, eos=0
        )
        assert (each.vocab_size, each.padding_id) == (11, 10)
        assert each.encode_batch(["the  the"])[0].ids == [3, 4, 5, 6, 3, 4, 5, 6, 0]
        assert each.encode_batch(["he"], ["t"])[0].ids == [3, 5, 6, 3, 4, 0]
        assert each.encode_targets(["wo"])[0].ids == [3, 8, 9, 0]
        # What a model does not know is one piece, which vocab.json does not have.
        assert each.encode_batch(["wow"])[0].ids == [3, 1, 0]
        assert each.encode_targets(["wo ein"], max_length=4)[0].ids == [3, 8, 9, 0]
        assert each.decode([10, 3, 8, 9, 3, 4, 0]) == "wo t"
        assert each.decode([3, 8, 0, 10], skip_special_tokens=False) == "w</s> <pad>"
        assert each.fingerprint() == tokenizer.fingerprint()


def test_a_language_code_is_a_piece_at_the_start_of_a_text(tokenizer):
    encoding = tokenizer.encode_batch([">>de<< the"])[0]
    assert encoding.ids == [2, 3, 4, 5, 6, 0]
    assert encoding.offsets == [(0, 6), (7, 7), (7, 8), (8, 9), (9, 10), (0, 0)]
    assert tokenizer.encode_batch([">>fr<<"])[0].ids == [1, 0]
    assert 2 not in tokenizer.encode_batch(["t >>de<<"])[0].ids
    # In a corpus, it is text.
    assert 2 not in tokenizer.encode_sentences([">>de<< the"])[0]


def test_separate_vocabularies(tmp_path):
    source = {
        "</s>": 0,
        "<unk>": 1,
        "<pad>": 2,
        **{letter: 3 + i for i, letter in enumerate("▁th")},
    }
    target = {"</s>": 0, "<unk>": 1, "<pad>": 2, "w": 3, "▁": 4, "o": 5}
    path = write(tmp_path / "marian", source, target, separate_vocabs=True)
    tokenizer = load_tokenizer(path)
    tokenizer.save(tmp_path / "saved")
    for each in (tokenizer, load_tokenizer(tmp_path / "saved")):
        assert each.encode_batch(["the"])[0].ids == [3, 4, 5, 1, 0]
        assert each.encode_targets(["wo"])[0].ids == [4, 3, 5, 0]
        assert each.decode([4, 3, 5, 0]) == "wo"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("vocab.json", '{"a": 0}', "vocab.json: the vocabulary has no <unk>; copy all files"),
        ("vocab.json", "[]", "vocab.json"),
        ("target.spm", "x", "target.spm: not a SentencePiece model"),
        (
            "target_vocab.json",
            '{"</s>": 1, "<unk>": 0, "<pad>": 10}',
            "</s> has the id 1, and 0",
        ),
    ],
)
def test_damaged_files_are_named(tmp_path, name, content, message):
    config = {"separate_vocabs": name == "target_vocab.json"}
    path = write(tmp_path / "marian", IDS | {"<pad>": V}, **config)
    (path / name).write_text(content)
    with pytest.raises(UserError, match=message):
        load_tokenizer(path)


def test_another_kind_is_refused(tmp_path):
    path = write(tmp_path / "marian", IDS | {"<pad>": V})
    with pytest.raises(UserError, match="a marian tokenizer, but the model needs the SentencePie"):
        load_tokenizer(path, kind=T5)
    (tmp_path / "vocab.txt").write_text("[PAD]\n")
    with pytest.raises(UserError, match="needs the SentencePiece models of its languages; give so"):
        load_tokenizer(tmp_path / "vocab.txt", kind=MARIAN)
