"""Hugging Face's tokenizer classes: what a folder's `tokenizer_class` stands for."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bert_jax.errors import UserError
from bert_jax.tokenization.interface import (
    BYTE_LEVEL_BPE,
    CAMEMBERT,
    SENTENCEPIECE,
    WORDPIECE,
    XLM_ROBERTA,
)

LIBRARY = "tokenizer.json"
"""The kind of a tokenizer of which a `tokenizer.json` says everything."""


class TokenizerClass(NamedTuple):
    """A class of Hugging Face's.

    Attributes:
        name: its name, as a file has it.
        kind: one of the kinds in `interface`, or `LIBRARY`.
        has_types: whether it gives the second text token type 1; `model_input_names` in
            `tokenizer_config.json` has precedence. (transformers 5 gives none for ALBERT, whose
            models were trained with them.)
    """

    name: str
    kind: str
    has_types: bool


# Without "Fast". Those of transformers 5 that are a BertTokenizer, and the others.
_CLASSES = {
    **dict.fromkeys(
        (
            *("BertTokenizer", "ConvBertTokenizer", "ElectraTokenizer", "LayoutLMTokenizer"),
            *("LxmertTokenizer", "MobileBertTokenizer", "SqueezeBertTokenizer"),
            *("DPRContextEncoderTokenizer", "DPRQuestionEncoderTokenizer"),
        ),
        (WORDPIECE, True),
    ),
    "DPRReaderTokenizer": (WORDPIECE, False),
    "DistilBertTokenizer": (WORDPIECE, False),
    "AlbertTokenizer": (SENTENCEPIECE, True),
    "RobertaTokenizer": (BYTE_LEVEL_BPE, False),
    "LongformerTokenizer": (BYTE_LEVEL_BPE, False),
    "CamembertTokenizer": (CAMEMBERT, False),
    "XLMRobertaTokenizer": (XLM_ROBERTA, False),
}
# These never read a `tokenizer.json`: they split text by programs of their own.
_PROGRAMS = (
    *("BertJapaneseTokenizer", "BertweetTokenizer", "CharacterTokenizer", "EsmTokenizer"),
    *("FlaubertTokenizer", "MecabTokenizer", "PhobertTokenizer", "RoCBertTokenizer"),
    *("TapasTokenizer", "XLMTokenizer"),
)


def named_class(
    config_path: Path, config: Mapping[str, Any], model_config: Mapping[str, Any], is_there: bool
) -> TokenizerClass | None:
    """The class that the files of a folder name; None if they name none.

    Args:
        config_path: path of `tokenizer_config.json`, to name in errors.
        config: its content.
        model_config: the content of the `config.json` beside it, which is read second.
        is_there: whether the folder has a `tokenizer.json`.

    Raises:
        UserError: the class is not supported, and no `tokenizer.json` stands for it.
    """
    key, path, name = "tokenizer_class", config_path, config.get("tokenizer_class")
    if name is None:
        path, name = config_path.with_name("config.json"), model_config.get(key)
    if name is None:
        return None
    base = str(name).removesuffix("Fast")
    if base in _CLASSES:
        return TokenizerClass(name, *_CLASSES[base])
    if base in _PROGRAMS:
        raise UserError(
            f"{path}: {key} is {name}, a program that splits text in its own way; it is not "
            "supported: give a model with another tokenizer"
        )
    if not is_there:
        raise UserError(
            f"{path}: {key} is {name!r:.80}, which is supported only with a tokenizer.json: "
            "save the tokenizer with transformers into one"
        )
    return TokenizerClass(name, LIBRARY, has_types=False)
