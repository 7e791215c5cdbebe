"""The tokenizer of T5, by eye."""

import json

import pytest

from bert_jax.errors import UserError
from bert_jax.tokenization import SpecialIds, load_tokenizer
from bert_jax.tokenization.interface import T5, XLM_ROBERTA
from tests.tokenization.folders import trained

WORDS = ["Thank", "you", "me", "to", "your", "party", "week", "for", "inviting", "last"]
PIECES = [
    *(("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -3.0), (".", -3.0)),
    *((f"▁{word}", -2.0) for word in WORDS),  # from 5 on
    *(("<extra_id_2>", 0.0), ("<extra_id_1>", 0.0), ("<extra_id_0>", 0.0)),  # 15, 16, 17
]
LECTURE = "Thank you <extra_id_0> me to your party <extra_id_1> week."
IDS = [5, 6, 17, 7, 8, 9, 10, 16, 11, 4]


def write(path, config, pieces=PIECES):
    path.mkdir()
    model = {"type": "Unigram", "unk_id": 2, "vocab": pieces}
    (path / "tokenizer.json").write_text(json.dumps({"model": model}))
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    return path


def test_the_ids_of_the_lectures_example(tmp_path):
    path = write(tmp_path / "t5", {"tokenizer_class": "T5TokenizerFast", "extra_ids": 3})
    tokenizer = load_tokenizer(path)
    tokenizer.save(tmp_path / "saved")
    for each in (tokenizer, load_tokenizer(tmp_path / "saved")):
        assert each.special_ids == SpecialIds(
            pad=0, unk=2, cls=None, sep=None, mask=None, bos=None, eos=1
        )
        assert (each.vocab_size, each.padding_id, each.sentinel_ids()) == (18, 0, [17, 16, 15])
        assert each.encode_batch([LECTURE])[0].ids == [*IDS, 1]
        assert each.encode_batch(["to", "  party   you "], ["me", ""])[0].ids == [8, 1, 7, 1]
        (target,) = each.encode_targets(["<extra_id_0> for inviting <extra_id_1> last"])
        assert target.ids == [17, 12, 13, 16, 14, 1]
        # In plain text, it is no special token: "<" "extra" … are unknown.
        assert 17 not in each.encode_sentences([LECTURE])[0]
        assert each.decode([0, *IDS, 1]) == "Thank you me to your party week."
        assert each.decode([17, 12, 1], skip_special_tokens=False) == "<extra_id_0> for</s>"


def test_sentinels_that_the_files_lack_follow_the_vocabulary(tmp_path):
    config = {"tokenizer_class": "T5Tokenizer", "extra_ids": 2}
    tokenizer = load_tokenizer(write(tmp_path / "t5", config, PIECES[:15]))
    assert tokenizer.sentinel_ids() == [15, 16]
    config["clean_up_tokenization_spaces"] = True
    pieces = [*PIECES[:4], ("▁.", -1.0), *PIECES[5:15]]
    cleaned = load_tokenizer(write(tmp_path / "cleaned", config, pieces))
    assert (tokenizer.decode([10, 3, 4]), cleaned.decode([10, 4])) == ("party .", "party.")


def test_a_model_file_gets_sentinels_with_descending_ids_at_the_end(tmp_path):
    lines = ["thank you for inviting me to your party last week"] * 9
    path = tmp_path / "spiece.model"
    path.write_bytes(trained(lines, vocab_size=25, pad_id=0, eos_id=1, unk_id=2, bos_id=-1))
    tokenizer = load_tokenizer(tmp_path, kind=T5)
    assert tokenizer.vocab_size == 125
    assert tokenizer.sentinel_ids() == list(range(124, 24, -1))
    assert tokenizer.special_ids.eos == tokenizer.encode_batch(["you"])[0].ids[-1] == 1
    path.write_bytes(trained(lines, vocab_size=25))
    with pytest.raises(UserError, match=r"first pieces are <unk>, <s>, </s>, not <pad>, </s>, <"):
        load_tokenizer(tmp_path, kind=T5)


def test_what_is_not_t5_is_refused(tmp_path):
    path = write(tmp_path / "t5", {"tokenizer_class": "T5Tokenizer", "extra_ids": "3"})
    with pytest.raises(UserError, match="extra_ids is '3'; give a number from 0"):
        load_tokenizer(path)
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n")
    for kind in (T5, XLM_ROBERTA):
        with pytest.raises(UserError, match="a wordpiece tokenizer, but the model needs the Sent"):
            load_tokenizer(vocabulary, kind=kind)
