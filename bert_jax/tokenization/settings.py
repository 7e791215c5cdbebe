"""What `tokenizer_config.json` says beside the rules for text: limits, sides, and further keys."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bert_jax.errors import UserError

# transformers writes 1e30 for "no limit", and takes every number above 1e20 as that.
_NO_LIMIT = 1e20
CONFIG_FILE = "tokenizer_config.json"
SIDES = ("right", "left")

# Paths of the machine that saved the file; transformers drops them, too.
_LOCAL = ("name_or_path", "special_tokens_map_file", "tokenizer_file", "vocab_file", "merges_file")

# Keys of `tokenizer.json` that are not used here, except for the direction of truncation.
_LIBRARY = ("truncation", "padding", "decoder")

# Keys that change ids, with the value that every model of these families has.
_ONLY = {"split_special_tokens": False}


@dataclasses.dataclass(frozen=True)
class TokenizerSettings:
    """What the files of a tokenizer say that changes no ids of a text that fits.

    Attributes:
        class_name: Hugging Face's class, as the files name it; None if they name none.
        model_max_length: maximum number of tokens that the tokenizer's files give; None for none.
        truncation_side: side where a text is cut, "right" or "left".
        others: keys of `tokenizer_config.json` that are saved as they were read.
        library: keys of `tokenizer.json` that are saved as they were read: settings of other
            programs that use the library.
    """

    class_name: str | None = None
    model_max_length: int | None = None
    truncation_side: str = SIDES[0]
    others: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    library: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def saved(self, config: Mapping[str, Any], max_length: int | None) -> dict[str, Any]:
        """The content of a `tokenizer_config.json`.

        Args:
            config: its keys for class, rules and tokens.
            max_length: limit to write where the files gave none; None for none.
        """
        others = {key: value for key, value in self.others.items() if key not in config}
        if self.truncation_side != SIDES[0]:
            others["truncation_side"] = self.truncation_side
        limit = max_length if self.model_max_length is None else self.model_max_length
        limits = {} if limit is None else {"model_max_length": limit}
        return {**config, **others, **limits}


def read_settings(
    path: Path,
    config: Mapping[str, Any],
    definition: Mapping[str, Any] | None = None,
    class_name: str | None = None,
) -> TokenizerSettings:
    """The settings in the content of a `tokenizer_config.json`.

    Args:
        path: file to name in errors.
        config: its content.
        definition: the content of the `tokenizer.json` beside it; None if there is none.
        class_name: Hugging Face's class; None if no file names it.

    Raises:
        UserError: a limit is no positive number, or a side is neither "right" nor "left".
    """
    # "max_len" is the key of transformers 2.
    key = "model_max_length" if "model_max_length" in config else "max_len"
    limit = config.get(key)
    if limit is not None:
        if isinstance(limit, bool) or not isinstance(limit, int | float) or not limit >= 1:
            raise UserError(f"{path}: {key} is {limit!r:.80}; give a number of tokens from 1")
        limit = int(limit) if limit <= _NO_LIMIT else None
    library = {key: value for key, value in (definition or {}).items() if key in _LIBRARY}
    cut = library.get("truncation")
    cut = str(cut.get("direction", SIDES[0])).lower() if isinstance(cut, dict) else SIDES[0]
    sides = {"truncation_side": cut, "padding_side": SIDES[0]}
    sides = {key: config.get(key, default) for key, default in sides.items()}
    for key, side in sides.items():
        if side not in SIDES:
            raise UserError(f"{path}: {key} is {side!r:.80}; give {' or '.join(SIDES)}")
    for key, only in _ONLY.items():
        if config.get(key, only) != only:
            raise UserError(f"{path}: {key} is {config[key]!r:.80}; only {only} is supported")
    dropped = {*_LOCAL, "model_max_length", "max_len", "truncation_side"}
    others = {key: value for key, value in config.items() if key not in dropped}
    return TokenizerSettings(class_name, limit, sides["truncation_side"], others, library)
