"""Byte-level BPE: by eye, and against a tokenizer that is built with only the library."""

import json

import pytest
import tokenizers
from tokenizers import AddedToken, models, normalizers, pre_tokenizers, processors

from bert_jax.data.windows.words import WordWindows
from bert_jax.errors import UserError
from bert_jax.tokenization import (
    ByteLevelBPETokenizer,
    ByteLevelSwitches,
    SpecialIds,
    load_tokenizer,
)
from bert_jax.tokenization.interface import BYTE_LEVEL_BPE
from tests.tokenization.folders import BYTES, FAST, PIECES, definition, named, template

CONFIG = "tokenizer_config.json"
SPECIALS = ["<s>", "<pad>", "</s>", "<unk>"]
MERGES = [
    *[("t", "h"), ("th", "e"), ("Ġ", "the"), ("d", "o"), ("do", "g"), ("Ġ", "dog"), ("Ġ", "d")],
    *[("Ġd", "o"), ("'", "t"), ("Ã", "©"), ("ł", "Ģ")],
]


def vocabulary():
    """Special tokens, 256 bytes from id 4 on, the results of the merges, and <mask>."""
    bytes_ = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = [*SPECIALS, *bytes_, *("".join(merge) for merge in MERGES), "<mask>"]
    return {piece: token_id for token_id, piece in enumerate(pieces)}


@pytest.fixture
def roberta():
    return ByteLevelBPETokenizer(vocabulary(), MERGES)


@pytest.fixture
def directory(roberta, tmp_path):
    roberta.save(tmp_path / "model", max_length=64)
    return tmp_path / "model"


def load(path, **arguments):
    return load_tokenizer(path, kind=BYTE_LEVEL_BPE, **arguments)


TEXTS = [
    "the dog",
    " the dogs don't  do\n the dog's",
    "thé 中国🙂 e\u0301 \u00a0 the",
    "the <mask> the  <mask>, a<mask>",
    "<s> the </s><pad><unk>",
    "",
    " ",
    "a\u2028b\t\tc \x00 \x85 1,000th",
]


def test_encodes_one_text_and_a_pair(roberta):
    one, two = roberta.encode_batch(["the dog"]), roberta.encode_batch(["the"], [" the dog"])

    assert one[0].tokens == ["<s>", "the", "Ġdog", "</s>"]
    assert one[0].offsets == [(0, 0), (0, 3), (4, 7), (0, 0)]
    assert one[0].word_ids == [None, 0, 1, None]
    assert two[0].tokens == ["<s>", "the", "</s>", "</s>", "Ġthe", "Ġdog", "</s>"]
    assert two[0].type_ids == [0] * 7
    assert two[0].offsets[4:6] == [(1, 4), (5, 8)]
    assert roberta.special_ids == SpecialIds(pad=1, unk=3, cls=0, sep=2, mask=271, bos=0, eos=2)


@pytest.mark.parametrize("switches", [(False, True), (True, True), (False, False), (True, False)])
def test_ids_offsets_and_words_are_those_of_the_library(switches):
    """The peer has RoBERTa's own post-processor."""
    tokenizer = ByteLevelBPETokenizer(vocabulary(), MERGES, ByteLevelSwitches(*switches))
    peer = tokenizers.Tokenizer(models.BPE(vocab=vocabulary(), merges=MERGES))
    peer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=switches[0])
    peer.add_special_tokens([*SPECIALS, tokenizers.AddedToken("<mask>", lstrip=True)])
    peer.post_processor = processors.RobertaProcessing(
        ("</s>", 2), ("<s>", 0), trim_offsets=switches[1], add_prefix_space=switches[0]
    )
    pairs = [*TEXTS[1:], TEXTS[0]]

    encodings = tokenizer.encode_batch(TEXTS) + tokenizer.encode_batch(TEXTS, pairs)
    expected = peer.encode_batch(TEXTS) + peer.encode_batch(list(zip(TEXTS, pairs, strict=True)))
    for encoding, other in zip(encodings, expected, strict=True):
        for field in ("ids", "tokens", "word_ids", "type_ids", "offsets"):
            assert getattr(encoding, field) == getattr(other, field)


def test_each_word_has_the_ids_that_it_has_after_a_space(roberta):
    """As with Hugging Face's `is_split_into_words`, which needs `add_prefix_space`."""
    ((window,),) = WordWindows(roberta, 16)([["the", "dog", "don't", "é"]])

    tokens = ["<s>", "Ġthe", "Ġdog", "Ġ", "do", "n", "'t", "Ġ", "Ã©", "</s>"]
    assert window.tokens == tokens
    assert window.word_ids == [None, 0, 1, 2, 2, 2, 2, 3, 3, None]
    assert window.words == (0, 1, 2, 3)
    assert window.positions == (1, 2, 3, 7)


def test_pieces_with_a_space_begin_words_and_are_readable_where_they_are_text(roberta):
    begins = {roberta.id_to_token(i) for i in (~roberta.continuations()).nonzero()[0]}
    pieces = {"Ġthe": "Ġthe", "Ã©": "é", "Ġ": "Ġ", "<mask>": "<mask>", "Ã": "Ã", "Ċ": "Ċ"}

    assert begins == {*SPECIALS, "<mask>", "Ġ", "Ċ", "ĉ", "č", "Ġthe", "Ġdog", "Ġd", "Ġdo"}
    for piece, text in pieces.items():
        assert roberta.readable_token(roberta.token_to_id(piece)) == text


def test_every_file_gives_the_same_tokenizer(roberta, directory):
    pairs = TEXTS, TEXTS[::-1]
    config = json.loads((directory / "tokenizer_config.json").read_text())
    assert (config["tokenizer_class"], config["model_max_length"]) == ("RobertaTokenizer", 64)
    assert config["added_tokens_decoder"]["271"]["lstrip"] is True

    def loaded():
        # Without a family, as for the tokenizer of a corpus, the files tell the kind.
        for tokenizer in (load(directory, vocab_size=272), load_tokenizer(directory)):
            assert tokenizer.encode_batch(*pairs) == roberta.encode_batch(*pairs)
            assert tokenizer.fingerprint() == roberta.fingerprint()

    loaded()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (directory / name).unlink()
        loaded()
    assert load(directory / "vocab.json").fingerprint() == roberta.fingerprint()


def test_the_config_overrides_tokenizer_json(directory, roberta):
    path = directory / "tokenizer_config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps(config | {"add_prefix_space": None, "trim_offsets": None}))
    assert load(directory).switches == ByteLevelSwitches()
    path.write_text(json.dumps(config | {"add_prefix_space": True}))

    loaded = load(directory)

    assert loaded.switches == ByteLevelSwitches(add_prefix_space=True)
    (encoding,) = loaded.encode_batch(["the"])
    assert (encoding.tokens, encoding.offsets[1]) == (["<s>", "Ġthe", "</s>"], (0, 3))
    assert loaded.fingerprint() != roberta.fingerprint()
    # A mask leaves the space before it if the files say so.
    path.write_text(json.dumps(config).replace('"lstrip": true', '"lstrip": false'))
    tokens = ["<s>", "the", "Ġ", "<mask>", "</s>"]
    assert load(directory).encode_batch(["the <mask>"])[0].tokens == tokens


def test_words_become_added_tokens_that_leave_all_other_words(roberta, tmp_path):
    larger = roberta.with_words(["covid", "naïve", "the", "dog", "covid"])
    larger.save(tmp_path)
    (tmp_path / "tokenizer.json").rename(tmp_path / "alone.json")

    for tokenizer in (larger, load(tmp_path), load(tmp_path / "alone.json")):
        assert tokenizer.vocab_size == 274
        (encoding,) = tokenizer.encode_batch(["the covid, naïve covids"])
        assert encoding.tokens[1:8] == ["the", "Ġ", "covid", ",", "Ġ", "naïve", "Ġ"]
        assert encoding.tokens[8:] == [*"covids", "</s>"]
        assert encoding.ids[3] == 272
        assert encoding.offsets[3] == (4, 9)
        assert tokenizer.encode_sentences(["covid", "the covid"]) == [
            [272],
            [262, 224, 272],
        ]  # Ġthe Ġ covid
        assert tokenizer.decode(encoding.ids) == "the covid, naïve covids"
        assert tokenizer.fingerprint() == larger.fingerprint() != roberta.fingerprint()
    for word in ("New York", "covid-19", " covid", ""):
        with pytest.raises(UserError, match=r"^words: .*; (give words|remove)"):
            roberta.with_words([word])


def test_a_file_of_merges_that_is_cut_off_is_refused_or_said(directory, capsys):
    """Nothing else would show it: all text would fall into single bytes."""
    (directory / "tokenizer.json").unlink()
    merges = [f"{first} {second}" for first in "abcdefgh" for second in "klmnpq"]
    pieces = [*vocabulary(), *(merge.replace(" ", "") for merge in merges)]
    content = {piece: token_id for token_id, piece in enumerate(pieces)}
    (directory / "vocab.json").write_text(json.dumps(content))
    (directory / "tokenizer_config.json").unlink()
    lines = ["#version: 0.2", *map(" ".join, MERGES), *merges]

    def load_lines(count):
        (directory / "merges.txt").write_text("\n".join(lines[:count]))
        return load(directory)

    assert load_lines(len(lines)).encode_batch(["ak"])[0].tokens == ["<s>", "ak", "</s>"]
    assert capsys.readouterr().err == ""
    load_lines(len(lines) - 1)
    assert "makes 6 of the 320 pieces, such as 'hq'; if the file was" in capsys.readouterr().err
    for count in (1, 3):
        with pytest.raises(UserError, match=r"no merge makes 6\d of the 320 pieces, such as 'hq'"):
            load_lines(count)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("merges.txt", None, "merges.txt .*; give the merges.txt that was made with the vocab.js"),
        ("merges.txt", "#version: 0.2\nt h\nth z\n", r"merges.txt:3: the merge \(th z\) needs"),
        ("merges.txt", "t h e\n", r"merges.txt:1: the merge is \['t', 'h', 'e'\], not two pieces"),
        ("merges.txt", b"t h\n\xff\n", "merges.txt:2: byte 0xff is not UTF-8; copy the file again"),
        ("vocab.json", "{\n", "vocab.json:2: not JSON: "),
        ("vocab.json", "[1]", "vocab.json is not a JSON object; give an object of pieces and"),
        ("vocab.json", '{"a": 1.5}', "vocab.json: the id of 'a' is 1.5; give a number from 0"),
        (CONFIG, '{"trim_offsets": 1}', "trim_offsets is 1; give true or false"),
        (CONFIG, '{"added_tokens_decoder": {"5": 1}}', "added_tokens_decoder has 1 for"),
        (CONFIG, '{"added_tokens_decoder": {"300": {"content": "new"}}}', "'new' has the id 272 a"),
    ],
)
def test_damaged_files_are_explained(directory, name, content, message):
    (directory / "tokenizer.json").unlink()
    (directory / name).unlink()
    if content is not None:
        content = content.encode() if isinstance(content, str) else content
        (directory / name).write_bytes(content)

    with pytest.raises(UserError, match=message) as error:
        load(directory)
    assert str(error.value).startswith(str(directory))
    assert "\n" not in str(error.value)


def test_a_file_of_modernbert_composes_accents_and_has_runs_of_spaces(tmp_path):
    """NFC, added tokens that are not special, and BERT's names of the special ones."""
    vocabulary = {piece: i for i, piece in enumerate([*BYTES, *map("".join, MERGES)])}
    first = len(vocabulary)
    content = definition(
        models.BPE(vocab=vocabulary, merges=MERGES),
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        template(
            "[CLS] $A [SEP]", "[CLS] $A [SEP] $B [SEP]", **{"[CLS]": first + 2, "[SEP]": first + 3}
        ),
        [*PIECES[:4], AddedToken("[MASK]", lstrip=True)],
        (AddedToken("   ", normalized=True), AddedToken("|||EMAIL|||", normalized=True)),
        normalizer=normalizers.NFC(),
    )
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    (tmp_path / CONFIG).write_text(json.dumps(FAST | named(tuple(PIECES[:5]))))
    tokenizer, library = (
        load_tokenizer(tmp_path),
        tokenizers.Tokenizer.from_str(json.dumps(content)),
    )
    composed, *texts = ("the café", "the cafe\u0301", "dog   the|||EMAIL|||", "the [MASK] dog")
    for text in (composed, *texts):
        (encoding,) = tokenizer.encode_batch([text])
        expected = library.encode(text)
        assert (encoding.ids, encoding.offsets) == (expected.ids, expected.offsets), text
    assert tokenizer.decode(library.encode(texts[1]).ids) == texts[1]
    same = [each.ids for each in tokenizer.encode_batch([composed, texts[0]])]
    assert same[0] == same[1]
    # Words that are given one by one have the ids that they have within a text.
    assert [each.tokens for each in tokenizer.encode_words(["dog", "dog"])] == [["Ġdog"]] * 2
    tokenizer.save(tmp_path / "saved")
    again = load_tokenizer(tmp_path / "saved")
    assert again.fingerprint() == tokenizer.fingerprint()
    assert again.encode_batch([texts[0]])[0].ids == same[0]
