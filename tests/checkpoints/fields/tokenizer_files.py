"""The fields of a tokenizer's files.

Observables are ids of a text (the text is the name), `offsets of TEXT`, `types`, the token types of
a pair of one piece each, ids of special tokens and attributes of a `Tokenizer`.
"""

from collections.abc import Mapping
from typing import Any

from tests.checkpoints.fields import (
    COMPUTED,
    REFUSED,
    Field,
    all_carried,
    all_tested,
    carried,
    computed,
    refused,
)

CONFIG, TOKENIZER = "tokenizer_config.json", "tokenizer.json"
SPECIAL, ADDED = "special_tokens_map.json", "added_tokens.json"

PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "##a", "##b", "A", "y", "ä")
_NAMES = {f"{name.lower()}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep")}
_NAMES["mask_token"] = "[MASK]"


def _token(number: int, content: str, *, special: bool) -> dict[str, Any]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": number, "content": content, **flags, "special": special}


# A vocabulary and the switches of a BertTokenizer.
VOCABULARY: Mapping[str, Any] = {
    "vocab.txt": "".join(f"{piece}\n" for piece in PIECES),
    CONFIG: {"tokenizer_class": "BertTokenizer", "do_lower_case": True},
}
# A file of the tokenizers library that says everything, and `y` as an added token.
LIBRARY: Mapping[str, Any] = {
    CONFIG: {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_input_names": ["input_ids", "token_type_ids"],
        **_NAMES,
    },
    TOKENIZER: {
        "version": "1.0",
        "truncation": {
            "direction": "Right",
            "max_length": 128,
            "strategy": "LongestFirst",
            "stride": 0,
        },
        "padding": {
            "strategy": {"Fixed": 128},
            "direction": "Right",
            "pad_to_multiple_of": None,
            "pad_id": 0,
            "pad_type_id": 0,
            "pad_token": "[PAD]",
        },
        "added_tokens": [
            _token(10, "y", special=False),
            *(_token(number, name, special=True) for number, name in enumerate(PIECES[:5])),
        ],
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": True,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [
                {"SpecialToken": {"id": "[CLS]", "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}},
                {"SpecialToken": {"id": "[SEP]", "type_id": 0}},
            ],
            "pair": [
                {"SpecialToken": {"id": "[CLS]", "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}},
                {"Sequence": {"id": "B", "type_id": 1}},
            ],
            "special_tokens": {
                name: {"id": name, "ids": [number], "tokens": [name]}
                for number, name in ((2, "[CLS]"), (3, "[SEP]"))
            },
        },
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": {piece: number for number, piece in enumerate(PIECES)},
        },
    },
}

# Names of special tokens; any other key that ends in "_token" is one, too.
_TOKENS = {
    "cls_token": computed("y", "a", [10, 5, 3]),
    "sep_token": computed("y", "a", [2, 5, 10]),
    "unk_token": computed("y", "c", [2, 10, 3]),
    "pad_token": computed("y", "pad", 10),
    "mask_token": computed("y", "mask", 10),
    "bos_token": computed("y", "ay", [2, 5, 10, 3]),
    "eos_token": computed("y", "ay", [2, 5, 10, 3]),
    "image_token": computed("y", "ay", [2, 5, 10, 3]),
    "additional_special_tokens": computed(["y"], "ay", [2, 5, 10, 3]),
}

TOKENIZERS: Mapping[str, Mapping[str, Field]] = {
    CONFIG: {
        **_TOKENS,
        "extra_special_tokens": computed(["y"], "ay", [2, 5, 10, 3]),
        "model_specific_special_tokens": computed({"image_token": "y"}, "ay", [2, 5, 10, 3]),
        "added_tokens_decoder": computed({"10": {"content": "y"}}, "ay", [2, 5, 10, 3]),
        "tokenizer_class": refused("BertJapaneseTokenizer"),
        "do_lower_case": computed(False, "A", [2, 9, 3]),
        "strip_accents": computed(False, "ä", [2, 11, 3]),
        "tokenize_chinese_chars": computed(False, "a北", [2, 1, 3]),
        "split_special_tokens": refused(True),
        "model_input_names": computed(["input_ids", "attention_mask"], "types", [0, 0, 0, 0, 0]),
        "model_max_length": computed(8, "model_max_length"),
        "max_len": computed(8, "model_max_length"),
        "truncation_side": computed("left", "truncation_side"),
        # Of RobertaTokenizer and AlbertTokenizer.
        **all_tested(
            "add_prefix_space trim_offsets", COMPUTED, "test_the_config_overrides_tokenizer_json"
        ),
        **all_tested("keep_accents", COMPUTED, "test_a_tokenizer_json_of_albert_with_its_cleaning"),
        # Paths of the machine that wrote them; transformers leaves them out, too.
        **all_tested(
            "name_or_path special_tokens_map_file tokenizer_file vocab_file",
            "left out",
            "test_what_the_files_say_is_saved_again",
        ),
        # Of calls without arguments, of `decode`, of classes of earlier versions, of chats, of
        # loading.
        "padding_side": carried("left"),
        **all_carried(
            "max_length pad_to_multiple_of pad_token_type_id stride truncation_strategy "
            "auto_map backend chat_template clean_up_tokenization_spaces do_basic_tokenize "
            "errors full_tokenizer_file is_local legacy local_files_only my_note never_split "
            "processor_class remove_space response_template sp_model_kwargs "
            "spaces_between_special_tokens use_fast wordpieces_prefix"
        ),
    },
    SPECIAL: _TOKENS,
    ADDED: {"y": computed(10, "ay", [2, 5, 10, 3])},
    TOKENIZER: {
        "version": refused("2.0"),
        "truncation.direction": computed("Left", "truncation_side", "left"),
        "truncation.max_length": carried(64),
        "truncation.strategy": carried("OnlyFirst"),
        "truncation.stride": carried(8),
        "padding.strategy": carried({"Fixed": 64}),
        "padding.direction": carried("Left"),
        "padding.pad_to_multiple_of": carried(8),
        "padding.pad_id": carried(1),
        "padding.pad_type_id": carried(1),
        "padding.pad_token": carried("[UNK]"),
        "added_tokens.0.id": refused(9),
        "added_tokens.0.content": refused("b"),
        "added_tokens.0.single_word": computed(True, "ay", [2, 1, 3]),
        "added_tokens.0.lstrip": computed(True, "offsets of a y", [(0, 0), (0, 1), (1, 3), (0, 0)]),
        "added_tokens.0.rstrip": computed(True, "offsets of y a", [(0, 0), (0, 2), (2, 3), (0, 0)]),
        "added_tokens.0.normalized": computed(True, "aY", [2, 5, 10, 3]),
        "added_tokens.0.special": computed(True, "decoded a y", "a"),
        "normalizer": computed(None, "A", [2, 9, 3]),
        "normalizer.type": refused("Replace"),
        "normalizer.clean_text": computed(False, "a\x01b", [2, 1, 3]),
        "normalizer.handle_chinese_chars": computed(False, "a北", [2, 1, 3]),
        "normalizer.strip_accents": computed(False, "ä", [2, 11, 3]),
        "normalizer.lowercase": computed(False, "A", [2, 9, 3]),
        "pre_tokenizer": refused({"type": "Split", "pattern": {"Regex": "(a|a)*"}}),
        "pre_tokenizer.type": computed("WhitespaceSplit", "a.b", [2, 1, 3]),
        "post_processor": computed(None, "a", [5]),
        "post_processor.type": refused("MyTemplate"),
        "post_processor.single": computed([{"Sequence": {"id": "A", "type_id": 0}}], "a", [5]),
        "post_processor.pair.2.Sequence.type_id": computed(0, "types", [0, 0, 0]),
        "post_processor.special_tokens.[CLS].ids": refused([4]),
        "decoder": carried(None),
        "model.type": refused("WordLevel"),
        "model.unk_token": computed("y", "c", [2, 10, 3]),
        "model.continuing_subword_prefix": refused("@@"),
        "model.max_input_chars_per_word": computed(1, "ab", [2, 1, 3]),
        **all_tested("model.vocab", COMPUTED, "test_ids_may_have_gaps"),
        # Of byte-level BPE.
        **all_tested(
            "pre_tokenizer.add_prefix_space pre_tokenizer.trim_offsets model.merges "
            "post_processor.add_prefix_space post_processor.trim_offsets post_processor.sep "
            "post_processor.cls",
            COMPUTED,
            "test_every_file_gives_the_same_tokenizer",
        ),
        **all_tested(
            "pre_tokenizer.use_regex model.dropout model.end_of_word_suffix model.fuse_unk "
            "model.byte_fallback model.ignore_merges",
            REFUSED,
            "test_what_is_refused_in_tokenizer_json",
        ),
        # Of Unigram.
        **all_tested(
            "normalizer.normalizers normalizer.precompiled_charsmap model.unk_id",
            COMPUTED,
            "test_what_is_admitted_in_tokenizer_json",
        ),
        **all_tested(
            "pre_tokenizer.pretokenizers",
            COMPUTED,
            "test_a_tokenizer_json_of_albert_with_its_cleaning",
        ),
    },
}
