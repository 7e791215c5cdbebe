"""What a `tokenizer.json` may contain."""

import json
from typing import Any

import pytest
import tokenizers

from bert_jax.errors import UserError
from bert_jax.tokenization import load_tokenizer
from bert_jax.tokenization.wordpiece import STEPS
from tests.tokenization.folders import ROBERTA_POST, bpe, template, unigram, wordpiece

DEFINITIONS = {
    "wordpiece": wordpiece,
    "bpe": lambda: bpe(ROBERTA_POST),
    "unigram": unigram,
    "other order": lambda: wordpiece(template("[CLS] $A", "[CLS] $B [SEP] $A")),
}
PATTERN = {"Regex": "(a+)+$"}
SPLIT = {"type": "Split", "pattern": PATTERN, "behavior": "Isolated"}
REPLACE = {"type": "Replace", "pattern": PATTERN, "content": "x"}
RUNS = {"pattern": {"Regex": " {2,}"}}
SPACES = {"type": "Replace", "content": " ", **RUNS}
LOWERCASE = {"type": "Lowercase"}
A, B = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")


def sequence(key: str, *steps: Any) -> dict[str, Any]:
    return {"type": "Sequence", key: list(steps)}


def templates(single: list[Any], pair: list[Any]) -> dict[str, Any]:
    ids = {"[CLS]": {"id": "[CLS]", "ids": [2], "tokens": ["[CLS]"]}}
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": ids}


@pytest.fixture
def load(tmp_path):
    """Loads a definition, by its name, with another value of a field, by its dotted path."""

    def change_and_load(name, path="", value=None):
        content = definition = json.loads(json.dumps(DEFINITIONS[name]()))
        *parents, last = path.split(".")
        for key in parents:
            content = content[int(key) if isinstance(content, list) else key]
        if path:
            content[int(last) if isinstance(content, list) else last] = value
        (tmp_path / "changed.json").write_text(json.dumps(definition))
        return load_tokenizer(tmp_path / "changed.json")

    return change_and_load


PRECOMPILED = {"type": "Precompiled"}
SEP_ONLY = {"SpecialToken": {"id": "[SEP]", "type_id": 0}}
OTHER_SEP = {"type": "BertProcessing", "cls": ["[CLS]", 2], "sep": ["[SEP]", 4]}


@pytest.mark.parametrize(
    ("name", "path", "value", "message"),
    [
        ("wordpiece", "pre_tokenizer", SPLIT, "the pre_tokenizer 'Split' is not supported; for a"),
        ("wordpiece", "normalizer", REPLACE, "'Replace' is not supported; for a model of type Wo"),
        ("wordpiece", "normalizer", sequence("normalizers", LOWERCASE, PRECOMPILED), "'Precompil"),
        ("wordpiece", "normalizer", {"type": "Sequence"}, "'Sequence' is not supported"),
        ("wordpiece", "normalizer", [1], "the normalizer None is not supported"),
        ("wordpiece", "model.max_input_chars_per_word", 10**12, "per_word is 1000000000000; give"),
        ("wordpiece", "model.max_input_chars_per_word", 0, "per_word is 0; give a number from 1 t"),
        ("wordpiece", "model.max_input_chars_per_word", True, "per_word is True; give a number"),
        ("wordpiece", "model.unk_token", "[FOO]", r"no \[FOO\]; copy all files"),
        ("wordpiece", "model.unk_token", ["[UNK]"], r"no \['\[UNK\]'\]; copy all files"),
        ("wordpiece", "model.unk_token", True, "the vocabulary has no True; copy all files"),
        ("wordpiece", "model.continuing_subword_prefix", "_", "begin with '_'; only '##' is supp"),
        ("wordpiece", "model.vocab", {"[UNK]": 10**12}, "the id of .* is 1000000000000; give a n"),
        ("wordpiece", "post_processor", {"type": "My"}, "the post_processor My cannot be read; kn"),
        ("wordpiece", "post_processor", templates([B], [A, B]), "TemplateProcessing cannot be rea"),
        ("wordpiece", "post_processor", templates([A], [A]), "TemplateProcessing cannot be read"),
        ("wordpiece", "post_processor", templates([SEP_ONLY, A], [A, B]), "Processing cannot be r"),
        ("wordpiece", "post_processor", OTHER_SEP, r"have 4 for '\[SEP\]', and the vocabulary .*3"),
        ("other order", "", None, "post_processor TemplateProcessing cannot be read; known are"),
        ("bpe", "pre_tokenizer", SPLIT, "'Split' is not supported; .* are ByteLevel, Sequence"),
        ("bpe", "pre_tokenizer.use_regex", False, "only one ByteLevel with use_regex is supported"),
        ("bpe", "pre_tokenizer", None, "the pre_tokenizer of the BPE model is None; only one Byte"),
        ("bpe", "normalizer", LOWERCASE, "the normalizer 'Lowercase' is not supported; for a mod"),
        ("bpe", "model.dropout", 0.1, "dropout of the BPE model is 0.1; byte-level BPE as in"),
        ("bpe", "model.byte_fallback", True, "fuse_unk of the BPE model is False; with byte_fallb"),
        ("bpe", "model.merges", [["t", "h"], ["th"]], r"merge 1 is \['th'\], not two pieces with"),
        ("bpe", "model.merges", ["t h", "q z"], r"merge 1 \(q z\) needs 'qz', which is not in the"),
        ("bpe", "model.merges", 3, "the BPE model has no list of merges; give a file"),
        ("bpe", "model.merges", [], "no merge makes 1. of the 267 pieces, such as .*: the file is"),
        ("unigram", "normalizer", REPLACE, "the normalizer .* is not known, but only the Unigram"),
        ("unigram", "normalizer", {"type": "Sequence"}, "'Sequence' is not supported"),
        ("unigram", "pre_tokenizer", SPLIT, "the pre_tokenizer 'Split' is not supported"),
        ("unigram", "normalizer.precompiled_charsmap", "?", "precompiled_charsmap is not base64"),
        (
            "unigram",
            "normalizer.precompiled_charsmap",
            "AAAA",
            "table of normalisation .* is damaged",
        ),
        ("unigram", "normalizer.precompiled_charsmap", None, "precompiled_charsmap is not base64"),
        ("unigram", "normalizer", REPLACE | RUNS, "the normalizer .* is not known, but only the U"),
        ("unigram", "pre_tokenizer", None, "there is no pre_tokenizer, so text is not split; give"),
        ("unigram", "pre_tokenizer", sequence("pretokenizers"), "there is no pre_tokenizer, so"),
        ("unigram", "model.unk_id", 0, "unk_id is 0, not the id of <unk>"),
        ("unigram", "model.unk_id", None, "unk_id is None, not the id of <unk>"),
        ("unigram", "model.byte_fallback", True, r"pieces for bytes \(byte_fallback\), but only"),
        ("unigram", "model.vocab", {"a": 1}, "vocab is not a list of pieces"),
        ("unigram", "model.vocab.9", [["x"], 0.0], "vocab is not a list of pieces with scores"),
        ("unigram", "model.vocab.9", ["x", 10**400], "vocab is not a list of pieces with scores"),
        ("unigram", "model.vocab.9", ["▁" * 1001, 0.0], "piece 9 is .*, not a text of at most 100"),
        ("unigram", "model.vocab.9", ["x", float("nan")], "piece 9 is 'x' with the score nan, not"),
    ],
)
def test_what_is_refused_in_tokenizer_json(load, tmp_path, name, path, value, message):
    if "charsmap" in path:
        path, value = "normalizer", {"type": "Precompiled", "precompiled_charsmap": value}
    with pytest.raises(UserError, match=message) as error:
        load(name, path, value)
    assert str(error.value).startswith(f"{tmp_path / 'changed.json'}: ")
    assert "\n" not in str(error.value)


def test_what_is_admitted_is_known_to_the_library(load):
    """Every name is one of the library, single and in a sequence; parts for other uses are left."""
    switches = ("clean_text", "handle_chinese_chars", "strip_accents", "lowercase")
    flags = {"behavior": "Isolated", "individual_digits": True, **dict.fromkeys(switches, True)}
    flags |= {"strip_left": True, "strip_right": True}
    for key, kinds in STEPS.items():
        for kind in kinds:
            step = {"type": kind, **flags}
            both = sequence({"normalizer": "normalizers"}.get(key, "pretokenizers"), step, step)
            for chosen in (step, both):
                assert load("wordpiece", key, chosen).encode_sentences(["dog"]) == [[6]]
    assert load("wordpiece", "decoder", []).switches is not None
    assert load("wordpiece", "truncation", 7).switches is not None
    assert load("wordpiece", "normalizer", None).switches is None


def test_what_is_admitted_changes_nothing_that_it_should_not(load):
    same = load("unigram").fingerprint()
    for value in (SPACES, sequence("normalizers", SPACES)):
        assert load("unigram", "normalizer", value).fingerprint() == same
    whitespace = {"type": "WhitespaceSplit"}
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"}
    usual = sequence("pretokenizers", whitespace, metaspace)
    assert load("unigram", "pre_tokenizer", usual).fingerprint() == same
    assert load("unigram", "pre_tokenizer", metaspace).fingerprint() != same


def test_a_panic_is_an_error_of_one_line(load, monkeypatch):
    # The library's class for panics of Rust code is not an Exception.
    class PanicException(BaseException):
        pass

    def panic(text):
        raise PanicException("index out of bounds\nnote: run with RUST_BACKTRACE")

    made = wordpiece()
    monkeypatch.setitem(DEFINITIONS, "made before", lambda: made)
    with monkeypatch.context() as patch:
        patch.setattr(tokenizers, "Tokenizer", type("Tokenizer", (), {"from_str": panic}))
        with pytest.raises(UserError, match=r"cannot read it: index out of bounds; give [^\n]*$"):
            load("made before")


def test_added_tokens_count_as_ids(load, tmp_path):
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "special"), False)
    added = [*wordpiece()["added_tokens"], {"id": 25, "content": "x", "normalized": True, **flags}]
    assert load("wordpiece", "added_tokens", added).vocab_size == 26
    rule = "changed.json: the tokenizer has 26 ids, the model only 25"
    with pytest.raises(UserError, match=rule):
        load_tokenizer(tmp_path / "changed.json", vocab_size=25)
