"""The fields of a tokenizer's files.

Observables are ids of a text (the text is the name), `offsets of TEXT`, `types`, the token types of
a pair of one piece each, ids of special tokens and attributes of a `Tokenizer`.
"""

import json
from collections.abc import Mapping
from typing import Any

from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import WordPiece as WordPieceDecoder
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import TemplateProcessing

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


# A vocabulary and the switches of a BertTokenizer.
VOCABULARY: Mapping[str, Any] = {
    "vocab.txt": "".join(f"{piece}\n" for piece in PIECES),
    CONFIG: {"tokenizer_class": "BertTokenizer", "do_lower_case": True},
}


def _library() -> dict[str, Any]:
    """A file of the tokenizers library with every field, and `y` as an added token."""
    vocabulary = {piece: number for number, piece in enumerate(PIECES)}
    tokenizer = Tokenizer(WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = BertNormalizer()
    tokenizer.pre_tokenizer = BertPreTokenizer()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A $B:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.decoder = WordPieceDecoder()
    tokenizer.enable_truncation(128)
    tokenizer.enable_padding(length=128)
    tokenizer.add_special_tokens(list(PIECES[:5]))
    tokenizer.add_tokens([AddedToken("y", normalized=False)])
    content = json.loads(tokenizer.to_str())
    content["added_tokens"] = [content["added_tokens"].pop(), *content["added_tokens"]]
    return content


LIBRARY: Mapping[str, Any] = {
    CONFIG: {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_input_names": ["input_ids", "token_type_ids"],
        **_NAMES,
    },
    TOKENIZER: _library(),
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
        **all_tested("split_by_punct", REFUSED, "test_rules_of_no_published_model_are_refused"),
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
            "spaces_between_special_tokens unk_id use_fast wordpieces_prefix"
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
            "test_saved_files_give_the_same_tokenizer",
        ),
        **all_tested(
            "normalizer.strip_left normalizer.strip_right normalizer.pattern normalizer.content",
            COMPUTED,
            "test_the_spaces_of_a_converter",
        ),
        **all_tested(
            "pre_tokenizer.pretokenizers",
            COMPUTED,
            "test_a_tokenizer_json_of_albert_with_its_cleaning",
        ),
    },
}
