"""The tokenizers of GPT-1 and GPT-2, by eye."""

import json

import pytest
import tokenizers
from tokenizers import AddedToken, models, normalizers, pre_tokenizers, processors

from bert_jax.errors import UserError
from bert_jax.tokenization import SpecialIds, load_tokenizer
from bert_jax.tokenization.interface import GPT2, OPENAI_GPT
from tests.tokenization.folders import BYTES, MERGES

END = "<|endoftext|>"
# 256 bytes; th 256, the 257, Ġthe 258, do 259, dog 260, Ġdog 261.
GPT2_PIECES = [*BYTES, *map("".join, MERGES), END]
T, S = BYTES.index("T"), BYTES.index("s")
# Ids 0 to 6, 7 to 11.
GPT1_PIECES = [
    *("<unk>", "l", "o", "w", "e", "r</w>", ".</w>"),
    *("w</w>", "lo", "low", "er</w>", "low</w>"),
]
GPT1_MERGES = [("l", "o"), ("lo", "w"), ("e", "r</w>"), ("lo", "w</w>")]


def write(path, pieces, merges, config=None):
    path.mkdir(parents=True)
    (path / "vocab.json").write_text(json.dumps({piece: i for i, piece in enumerate(pieces)}))
    lines = ["#version: 0.2", *(" ".join(merge) for merge in merges)]
    (path / "merges.txt").write_text("".join(f"{line}\n" for line in lines))
    if config is not None:
        (path / "tokenizer_config.json").write_text(json.dumps(config))
    return path


def test_gpt2_adds_nothing_and_has_one_special_token(tmp_path):
    named = {"tokenizer_class": "GPT2TokenizerFast"}
    path = write(tmp_path / "gpt2", GPT2_PIECES, MERGES, named)
    tokenizer = load_tokenizer(path)
    tokenizer.save(tmp_path / "saved")
    (tmp_path / "saved" / "tokenizer_config.json").unlink()
    bare = write(tmp_path / "bare", GPT2_PIECES, MERGES)
    for each in (
        tokenizer,
        load_tokenizer(bare, kind=GPT2),
        load_tokenizer(tmp_path / "saved", kind=GPT2),
    ):
        assert each.special_ids == SpecialIds(
            pad=None, unk=262, cls=None, sep=None, mask=None, bos=262, eos=262
        )
        assert (each.vocab_size, each.padding_id) == (263, 0)
        assert each.encode_batch(["the dogs"])[0].ids == [257, 261, S]
        assert each.encode_batch(["the"], [" dog"])[0].ids == [257, 261]
        assert each.encode_batch([f"the dog{END} the"])[0].ids == [257, 261, 262, 258]
        # In a corpus, a text comes from within a text, and has no special token.
        (sentence,) = each.encode_sentences([f"the dog{END}"])
        assert (sentence[:2], 262 in sentence) == ([258, 261], False)
        assert each.decode([258, 261, 262, T]) == " the dogT"
        assert each.decode([257, 262], skip_special_tokens=False) == f"the{END}"
        assert each.fingerprint() == tokenizer.fingerprint()
    # The offsets have the space that a piece begins with.
    assert tokenizer.encode_batch(["the dog"])[0].offsets == [(0, 3), (3, 7)]


def test_gpt2_with_other_switches(tmp_path):
    config = {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": True}
    tokenizer = load_tokenizer(write(tmp_path / "space", GPT2_PIECES, MERGES, config))
    assert tokenizer.encode_batch(["the dog"])[0].ids == [258, 261]
    config = {"tokenizer_class": "GPT2Tokenizer", "add_bos_token": True, "pad_token": END}
    tokenizer = load_tokenizer(write(tmp_path / "bos", GPT2_PIECES, MERGES, config))
    assert tokenizer.encode_batch(["the dog"])[0].ids == [262, 257, 261]
    assert tokenizer.encode_batch(["the"], ["dog"])[0].ids == [262, 257, 262, 260]
    assert tokenizer.padding_id == 262


def test_gpt2_as_in_its_tokenizer_json(tmp_path):
    """OpenAI's directory names no class, and its tokenizer.json has a processor for offsets."""
    model = models.BPE(vocab={piece: i for i, piece in enumerate(GPT2_PIECES)}, merges=MERGES)
    library = tokenizers.Tokenizer(model)
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.post_processor = processors.ByteLevel(trim_offsets=False)
    library.add_special_tokens([AddedToken(END, normalized=False)])
    library.save(str(tmp_path / "tokenizer.json"))
    tokenizer = load_tokenizer(tmp_path, kind=GPT2)
    assert tokenizer.special_ids.eos == 262
    (encoding,) = tokenizer.encode_batch(["the dog"])
    assert (encoding.ids, encoding.offsets) == ([257, 261], [(0, 3), (3, 7)])


def test_gpt1_lower_cases_and_marks_the_ends_of_words(tmp_path):
    config = {"tokenizer_class": "OpenAIGPTTokenizer"}
    path = write(tmp_path / "gpt", GPT1_PIECES, GPT1_MERGES, config)
    tokenizer = load_tokenizer(path)
    tokenizer.save(tmp_path / "saved")
    alone = (tmp_path / "saved" / "tokenizer.json").rename(tmp_path / "tokenizer.json")
    bare = write(tmp_path / "bare", GPT1_PIECES, GPT1_MERGES)
    for each in (tokenizer, load_tokenizer(bare, kind=OPENAI_GPT), load_tokenizer(alone)):
        assert each.special_ids == SpecialIds(pad=None, unk=0, cls=None, sep=None, mask=None)
        (encoding,) = each.encode_batch(["Low LÓWER."])
        assert encoding.tokens == ["low</w>", "low", "er</w>", ".</w>"]
        assert encoding.ids == [11, 9, 10, 6]
        assert encoding.offsets == [(0, 3), (4, 7), (7, 9), (9, 10)]
        assert each.encode_batch(["low x"], ["low"])[0].ids == [11, 0, 11]
        assert each.decode([11, 9, 10, 6]) == "low lower ."
        assert each.fingerprint() == tokenizer.fingerprint()


def test_a_vocabulary_of_gpt1_is_not_taken_for_cut_off(tmp_path, capsys):
    letters = [f"{letter}</w>" for letter in "abcdefgh"]
    load_tokenizer(write(tmp_path / "gpt", [*GPT1_PIECES, *letters], GPT1_MERGES), kind=OPENAI_GPT)
    assert capsys.readouterr().err == ""


def test_what_is_not_gpt1_is_refused(tmp_path):
    config = {"tokenizer_class": "OpenAIGPTTokenizer"}
    with pytest.raises(UserError, match="the vocabulary has no <unk>; copy all files"):
        load_tokenizer(write(tmp_path / "no unk", GPT1_PIECES[1:], GPT1_MERGES, config))
    tokenizer = load_tokenizer(write(tmp_path / "gpt", GPT1_PIECES, GPT1_MERGES, config))
    with pytest.raises(UserError, match="the BPE of GPT-1 cannot take new words"):
        tokenizer.with_words(["lowest"])
    marked = tokenizer.with_words(["<user>"], whole=True)
    assert marked.encode_batch(["low <user>"])[0].ids == [11, 12]
    library = tokenizers.Tokenizer.from_str(tokenizer._library.to_str())
    library.normalizer = normalizers.Lowercase()
    library.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(UserError, match="the normalizer 'Lowercase' is not supported"):
        load_tokenizer(tmp_path / "tokenizer.json")
    library.normalizer = normalizers.BertNormalizer(lowercase=False)
    library.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(UserError, match="are not those of GPT-1, which lower-cases"):
        load_tokenizer(tmp_path / "tokenizer.json")


def test_bart_is_roberta(tmp_path):
    pieces = ["<s>", "<pad>", "</s>", "<unk>", *BYTES, *map("".join, MERGES), "<mask>"]
    path = write(tmp_path / "bart", pieces, MERGES, {"tokenizer_class": "BartTokenizer"})
    tokenizer = load_tokenizer(path)
    assert tokenizer.encode_batch(["the dog <mask>"])[0].ids == [0, 261, 265, 266, 2]
    assert tokenizer.special_ids == SpecialIds(pad=1, unk=3, cls=0, sep=2, mask=266, bos=0, eos=2)
