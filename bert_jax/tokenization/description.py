"""What the files of a tokenizer say beside its vocabulary and its rules for text."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bert_jax.errors import UserError
from bert_jax.tokenization.encoding import Template
from bert_jax.tokenization.special_tokens import SpecialTokens

CONFIG_FILE = "tokenizer_config.json"
SIDES = ("right", "left")

# transformers writes 1e30 for "no limit", and takes every number above 1e20 as that.
_NO_LIMIT = 1e20

# Paths of the machine that saved the file, which transformers drops, too; keys with a field.
_DROPPED = (
    *("name_or_path", "special_tokens_map_file", "tokenizer_file", "vocab_file", "merges_file"),
    *("model_max_length", "max_len", "truncation_side"),
)
# Keys of `tokenizer.json` that are not used here, except for the direction of truncation.
_LIBRARY = ("truncation", "padding", "decoder")


@dataclasses.dataclass(frozen=True)
class Description:
    """What changes no pieces of a text: special tokens around it, limits, and further keys.

    Attributes:
        tokens: special and added tokens.
        template: positions of special tokens and token types around texts.
        class_name: Hugging Face's class, as the files name it; None if they name none.
        model_max_length: maximum number of tokens that the tokenizer's files give; None for none.
        truncation_side: side where a text is cut, "right" or "left".
        others: keys of `tokenizer_config.json` that are saved as they were read.
        library: keys of `tokenizer.json` that are saved as they were read: settings of other
            programs that use the library.
    """

    tokens: SpecialTokens
    template: Template
    class_name: str | None = None
    model_max_length: int | None = None
    truncation_side: str = SIDES[0]
    others: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    library: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def without_token_types(self) -> "Description":
        """The same with token type 0 for all tokens."""
        return dataclasses.replace(self, template=self.template.without_token_types())

    def saved(self, config: Mapping[str, Any], max_length: int | None) -> dict[str, Any]:
        """The content of a `tokenizer_config.json`.

        Args:
            config: its keys for class and rules.
            max_length: limit to write where the files gave none; None for none.
        """
        names = {f"{role}_token": name for role, name in self.tokens.names.items() if name}
        config = {**config, **names}
        others = {key: value for key, value in self.others.items() if key not in config}
        if self.truncation_side != SIDES[0]:
            others["truncation_side"] = self.truncation_side
        limit = max_length if self.model_max_length is None else self.model_max_length
        limits = {} if limit is None else {"model_max_length": limit}
        return {**config, **others, **limits}


def with_settings(
    description: Description,
    path: Path,
    config: Mapping[str, Any],
    definition: Mapping[str, Any] | None,
) -> Description:
    """A description with the limit, the side and the further keys of the files.

    Args:
        description: the description.
        path: `tokenizer_config.json`, to name in errors.
        config: its content.
        definition: the content of the `tokenizer.json` beside it; None if there is none.

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
    return dataclasses.replace(
        description,
        model_max_length=limit,
        truncation_side=sides["truncation_side"],
        others={key: value for key, value in config.items() if key not in _DROPPED},
        library=library,
    )
