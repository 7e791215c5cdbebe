"""How to search: the options that a user chooses."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from bert_jax.errors import OptionError, require_at_least, require_between, require_one_of

TRANSFORMERS, WMT = PENALTIES = ("transformers", "wmt")
NEVER = "never"
_LEAST = {
    "max_new_tokens": 1,
    "num_beams": 1,
    "num_return_sequences": 1,
    "top_k": 0,
    "min_length": 0,
    "min_new_tokens": 0,
    "no_repeat_ngram_size": 0,
}


@dataclasses.dataclass(frozen=True)
class SearchOptions:
    """Options of a search; greedy by default.

    The score of a sequence of l new tokens, with the end token, is its log-probability divided by
    l^α or, with the penalty of wmt, by ((5 + l) / 6)^α.

    A beam search adds up log-probabilities as `TokenRules` change them, like transformers; greedy
    search and sampling add up those of the model, without rules, temperature, top-k and top-p.

    Attributes:
        max_new_tokens: M, the largest number of tokens after the prompt.
        num_beams: K, beams of a prompt; 1: greedy search or sampling.
        length_penalty: α; above 0 it favours longer sequences, and 0 is the plain sum.
        temperature: tokens are sampled from the logits divided by it; 0: no sampling.
        top_k: number of the best tokens that are sampled from; 0: all.
        top_p: only the fewest best tokens whose probabilities add up to it are sampled.
        num_return_sequences: R, sequences for a prompt: the best of K beams, or R samples.
        early_stopping: when the beams of a prompt end with the penalty of transformers; False: the
            best beam, at its length, is worse than K ended sequences; "never": so at the length
            that is best for it; True: K sequences have ended.
        penalty: "transformers" or "wmt", the penalty and the stop rule of a beam search.
    """

    max_new_tokens: int = 64
    num_beams: int = 1
    length_penalty: float = 1.0
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    num_return_sequences: int = 1
    early_stopping: bool | str = False
    penalty: str = TRANSFORMERS

    def __post_init__(self) -> None:
        check_ranges(vars(self))
        require_one_of("penalty", self.penalty, PENALTIES)
        if not isinstance(self.early_stopping, bool) and self.early_stopping != NEVER:
            raise OptionError(
                "early_stopping", self.early_stopping, f'it must be True, False or "{NEVER}"'
            )
        self._check_together()

    def _check_together(self) -> None:
        """Raises OptionError for options that exclude each other."""
        if self.temperature and self.num_beams > 1:
            rule = "samples are drawn without beams: set {num_beams=1} or {temperature=0}"
            raise OptionError("num_beams", self.num_beams, rule)
        if not self.temperature:
            for key, off in (("top_k", 0), ("top_p", 1)):
                if getattr(self, key) != off:
                    rule = f"only samples have it: set {{temperature}} above 0, or {{{key}={off}}}"
                    raise OptionError(key, getattr(self, key), rule)
            if self.num_return_sequences > self.num_beams:
                rule = f"set {{num_beams}}, {self.num_beams}, to at least as many"
                rule += ", or {temperature} above 0 for samples"
                raise OptionError("num_return_sequences", self.num_return_sequences, rule)
        if self.penalty == WMT:
            if self.length_penalty < 0:
                rule = "with {penalty=wmt} it must be at least 0"
                raise OptionError("length_penalty", self.length_penalty, rule)
            if self.early_stopping is not False:
                rule = "{penalty=wmt} has its own stop rule: set {early_stopping=False}"
                raise OptionError("early_stopping", self.early_stopping, rule)


def check_ranges(values: Mapping[str, Any]) -> None:
    """Checks each number among some fields of `SearchOptions` and `TokenRules` by itself.

    Raises:
        OptionError: a value is no number, or out of range.
    """
    for key, least in _LEAST.items():
        require_at_least(key, values.get(key), least)
    require_between("length_penalty", values.get("length_penalty"))
    require_between("temperature", values.get("temperature"), 0)
    require_between("top_p", values.get("top_p"), 0, 1, without_low=True)
    require_between("repetition_penalty", values.get("repetition_penalty"), 0, without_low=True)
