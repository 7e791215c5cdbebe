"""What a `tokenizer.json` may contain."""

import json

import pytest
import tokenizers

from bert_jax.errors import UserError
from bert_jax.tokenization import definition, load_tokenizer, wordpiece
from bert_jax.tokenization.wordpiece import write_vocabulary


@pytest.fixture
def load(uncased, tmp_path):
    """Loads `uncased` with other values in its `tokenizer.json`, by their dotted keys."""
    uncased.save(tmp_path)

    def change_and_load(**changes):
        fields = json.loads((tmp_path / "tokenizer.json").read_text())
        for key, value in changes.items():
            (fields["model"] if key in fields["model"] else fields)[key] = value
        path = tmp_path / "changed.json"
        path.write_text(json.dumps(fields))
        return load_tokenizer(path)

    return change_and_load


PATTERN = {"Regex": "(a+)+$"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"pre_tokenizer": {"type": "Split", "pattern": PATTERN, "behavior": "Isolated"}},
            "changed.json: the pre_tokenizer 'Split' is not supported; for a model of type Wo",
        ),
        (
            {"normalizer": {"type": "Replace", "pattern": PATTERN, "content": "x"}},
            "changed.json: the normalizer 'Replace' is not supported; for a model of type Wo",
        ),
        (
            {
                "normalizer": {
                    "type": "Sequence",
                    "normalizers": [{"type": "NFC"}, {"type": "Precompiled"}],
                }
            },
            "the normalizer 'Precompiled' is not supported",
        ),
        ({"normalizer": {"type": "Sequence"}}, "the normalizer 'Sequence' is not supported"),
        ({"normalizer": [1]}, "the normalizer None is not supported"),
        (
            {"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKC"}] * 33}},
            "the normalizer has more than 32 steps",
        ),
        ({"max_input_chars_per_word": 10**12}, "per_word is 1000000000000; give .* from 1 to 1000"),
        ({"max_input_chars_per_word": 0}, "per_word is 0; give a number from 1"),
        ({"max_input_chars_per_word": True}, "per_word is True; give a number from 1"),
        ({"unk_token": "[FOO]"}, r"changed.json: the vocabulary has no \[FOO\]; copy all files"),
        ({"continuing_subword_prefix": "_"}, "begin with '_'; only '##' is supported"),
        ({"vocab": {"[UNK]": 10**12}}, "the id of .* is 1000000000000; give a number from 0 to"),
    ],
)
def test_what_is_refused(load, changes, message):
    with pytest.raises(UserError, match=message) as error:
        load(**changes)
    assert "\n" not in str(error.value)


def test_what_is_admitted_is_known_to_the_library(load):
    """Every name is one of the library, alone and in a sequence; parts for other uses are left."""
    for key, kinds in wordpiece.STEPS.items():
        for kind in kinds:
            step = {
                "type": kind,
                "behavior": "Isolated",
                "individual_digits": True,
            } | dict.fromkeys(
                ("clean_text", "handle_chinese_chars", "strip_accents", "lowercase"), True
            )
            sequence = {"type": "Sequence", definition._PARTS[key]: [step, step]}
            for chosen in (step, sequence):
                assert load(**{key: chosen}).encode_sentences(["dog"]) == [[10]]
    assert load(decoder=[], truncation=7).switches is not None
    assert load(normalizer=None).switches is None


def test_a_panic_is_an_error_of_one_line(load, monkeypatch):
    # The library's class for panics of Rust code is not an Exception.
    class PanicException(BaseException):
        pass

    def panic(text):
        raise PanicException("index out of bounds\nnote: run with RUST_BACKTRACE")

    with monkeypatch.context() as patch:
        patch.setattr(tokenizers, "Tokenizer", type("Tokenizer", (), {"from_str": panic}))
        with pytest.raises(UserError, match=r"cannot read it: index out of bounds; give [^\n]*$"):
            load()


def test_the_size_is_that_of_the_model(uncased, cat_tokenizer, tmp_path):
    directories = {}
    for tokenizer, name in ((uncased, "tokenizer.json"), (cat_tokenizer, "spiece.model")):
        directories[name] = tmp_path / name
        tokenizer.save(directories[name])
    directories["vocab.txt"] = tmp_path / "vocab"
    directories["vocab.txt"].mkdir()
    write_vocabulary(tmp_path / "vocab" / "vocab.txt", uncased._pieces)
    sizes = {"tokenizer.json": 20, "spiece.model": 42, "vocab.txt": 20}
    for name, directory in directories.items():
        size = sizes[name]
        assert load_tokenizer(directory, vocab_size=size).vocab_size == size
        message = f"{name}: the tokenizer has {size} ids, the model only {size - 1}; they do not"
        with pytest.raises(UserError, match=message):
            load_tokenizer(directory, vocab_size=size - 1)


def test_added_tokens_count_as_ids(load, uncased, tmp_path):
    added = {"id": 20, "content": "new", "special": False, "normalized": True}
    added |= dict.fromkeys(("single_word", "lstrip", "rstrip"), False)
    special = json.loads((tmp_path / "tokenizer.json").read_text())["added_tokens"]
    assert load(added_tokens=[*special, added]).vocab_size == 21
    with pytest.raises(
        UserError, match="changed.json: the tokenizer has 21 ids, the model only 20"
    ):
        load_tokenizer(tmp_path / "changed.json", vocab_size=20)
