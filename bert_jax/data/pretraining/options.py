"""The options of pre-training examples: how they are cut from documents, and what is masked."""

import dataclasses

from bert_jax.errors import OptionError, require_at_least, require_between, require_one_of

OBJECTIVES = ("nsp", "sop", "none")
UNITS = ("token", "token_with_replacement", "whole_word", "ngram", "span")
ROUNDINGS = ("nearest", "up", "random")
RANDOM_TOKENS = ("vocabulary", "non_special", "corpus")


@dataclasses.dataclass(frozen=True)
class PretrainingOptions:
    """Length, objective and masking of the examples.

    Attributes:
        length: T, tokens of a sequence, including [CLS], [SEP] and padding.
        objective: "nsp" (is the second sentence the next one?), "sop" (are the two in order?) or
            "none" (consecutive whole sentences of one document, RoBERTa's DOC-SENTENCES).
        cross_documents: with "none", whether a sequence continues in the next document of the
            corpus, with a [SEP] between the two (RoBERTa's FULL-SENTENCES).
        masking: what is masked together: "token"; "token_with_replacement" (positions are drawn
            with replacement and count once, so that fewer are masked: ELECTRA); "whole_word" (all
            pieces of a word; BERT's later models); "ngram" (1 to 3 whole words in a row, the
            shorter the more often: ALBERT, section 4.1) or "span" (1 to 10 whole words in a row:
            SpanBERT, section 3.1).
        max_predictions: P, maximum number of masked tokens of a sequence.
        mask_fraction: fraction of the tokens that is masked.
        mask_rounding: how the number of masked tokens becomes a whole number: "nearest", "up"
            (SpanBERT) or "random", up with the probability of its fractional part (RoBERTa).
        mask_replace_prob, random_replace_prob: fractions of the masked tokens that become [MASK],
            or a random token; the others are unchanged.
        random_tokens: a random token is any id of the "vocabulary", a "non_special" one (RoBERTa),
            or a token of the "corpus", as frequent as there (SpanBERT).
        span_boundary: with masking "span", whether the masked tokens are also predicted from the
            two tokens next to their span (SpanBERT's span-boundary objective).
        max_span_targets: maximum number of tokens of a span that are predicted so.
        short_probability: fraction of examples whose target length is uniform, from 2 tokens on.
        seed: seed of all random choices.
    """

    length: int = 128
    objective: str = "nsp"
    cross_documents: bool = False
    masking: str = "token"
    max_predictions: int = 20
    mask_fraction: float = 0.15
    mask_rounding: str = "nearest"
    mask_replace_prob: float = 0.8
    random_replace_prob: float = 0.1
    random_tokens: str = "vocabulary"
    span_boundary: bool = False
    max_span_targets: int = 20
    short_probability: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        require_at_least("data.length", self.length, 8)
        require_one_of("data.masking", self.masking, UNITS)
        require_one_of("data.mask_rounding", self.mask_rounding, ROUNDINGS)
        require_one_of("data.random_tokens", self.random_tokens, RANDOM_TOKENS)
        require_at_least("data.max_predictions", self.max_predictions, 1)
        require_between(
            "data.mask_fraction", self.mask_fraction, 0, 1, without_low=True, without_high=True
        )
        require_between("data.mask_replace_prob", self.mask_replace_prob, 0, 1)
        require_between("data.random_replace_prob", self.random_replace_prob, 0, 1)
        if self.mask_replace_prob + self.random_replace_prob > 1:
            rule = f"with data.mask_replace_prob, {self.mask_replace_prob}, it must be at most 1"
            raise OptionError("data.random_replace_prob", self.random_replace_prob, rule)
        require_one_of("data.objective", self.objective, OBJECTIVES)
        require_between("data.short_probability", self.short_probability, 0, 1)
        if self.cross_documents and self.objective != "none":
            rule = f"only data.objective=none continues in the next document, not {self.objective}"
            raise OptionError("data.cross_documents", self.cross_documents, rule)
        require_at_least("data.max_span_targets", self.max_span_targets, 1)
        if self.span_boundary and self.masking != "span":
            rule = f"set data.masking=span, which is {self.masking}"
            raise OptionError("data.span_boundary", self.span_boundary, rule)
        if self.span_boundary and self.objective != "none":
            rule = f"set data.objective=none, which is {self.objective}: it is for single texts"
            raise OptionError("data.span_boundary", self.span_boundary, rule)
