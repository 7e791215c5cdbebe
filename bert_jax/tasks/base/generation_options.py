"""How to generate, as people and files of models say it."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bert_jax.checkpoints.generation_config import (
    GenerationDefaults,
    fields_with,
    generation_defaults,
)
from bert_jax.errors import require_at_least, require_one_of
from bert_jax.files.paths import DESCRIPTION
from bert_jax.generation.next_token import TokenRules
from bert_jax.generation.options import NEVER, SearchOptions, check_ranges
from bert_jax.options import keys_of

_STOPPING = {"true": True, "false": False, NEVER: NEVER}


@dataclasses.dataclass(frozen=True)
class GenerationOptions:
    """How to generate, for people: None is what the model's files say, else the usual value.

    Attributes:
        max_new_tokens: maximum number of generated tokens (64, or what fits in).
        num_beams: beams of a search; 1: greedy search, or samples.
        length_penalty: see `SearchOptions`.
        early_stopping: see `SearchOptions`: True or "true", False or "false", or "never".
        penalty: "transformers" or "wmt", see `SearchOptions`.
        temperature: above 0: tokens are sampled.
        top_k, top_p: tokens that are sampled, see `SearchOptions`.
        num_return_sequences: generations of a text, the best first.
        min_new_tokens: minimum number of tokens before the end.
        no_repeat_ngram_size: length of n-grams that occur once at most; 0: no such rule.
        repetition_penalty: above 1: earlier tokens become less likely.
        seed: seed of the samples.
    """

    max_new_tokens: int | None = None
    num_beams: int | None = None
    length_penalty: float | None = None
    early_stopping: bool | str | None = None
    penalty: str | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    num_return_sequences: int | None = None
    min_new_tokens: int | None = None
    no_repeat_ngram_size: int | None = None
    repetition_penalty: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_ranges(vars(self))
        require_at_least("seed", self.seed, 0, 2**32 - 1)
        if self.early_stopping is not None:
            stopping = str(self.early_stopping).lower()
            require_one_of("early_stopping", stopping, _STOPPING)
            object.__setattr__(self, "early_stopping", _STOPPING[stopping])

    def _set(self, cls: type) -> dict[str, Any]:
        """The options that are set, of those that are fields of a class."""
        values = {name: getattr(self, name, None) for name in keys_of(cls)}
        return {name: value for name, value in values.items() if value is not None}

    def search(
        self, defaults: GenerationDefaults, prompt_length: int | None, positions: int | None = None
    ) -> SearchOptions:
        """The options of the search, see `GenerationDefaults.options`."""
        return defaults.options(prompt_length, self._set(SearchOptions), positions)

    def rules(self, defaults: GenerationDefaults) -> TokenRules:
        """The rules for tokens."""
        return dataclasses.replace(defaults.rules, **self._set(TokenRules))

    def fields_with(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Fields of an encoder-decoder's file from which it generates as with these options.

        Args:
            fields: the fields of its file so far.

        Raises:
            OptionError: an option is wrong, or excluded by another one.
        """
        options = self.search(generation_defaults(Path(DESCRIPTION), fields), 1)
        return fields_with(fields, options) | self._set(TokenRules)
