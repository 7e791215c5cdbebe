"""How passages are read and answers are searched."""

import dataclasses

from bert_jax.errors import require_at_least

# Maximum tokens of a window, unless the model takes fewer (run_squad.py of google-research/bert).
DEFAULT_LENGTH = 384


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpanOptions:
    """How passages are read and answers are searched; the lengths are tokens.

    Attributes:
        window_step: tokens from the start of a window to the next start, see `PassageWindows`.
        question_length: maximum number of tokens of a question.
        answer_length: maximum number of tokens of an answer.
        n_best: number of spans, all with different texts.
    """

    window_step: int = 128
    question_length: int = 64
    answer_length: int = 30
    n_best: int = 20

    def __post_init__(self) -> None:
        for field in dataclasses.fields(SpanOptions):
            require_at_least(f"data.{field.name}", getattr(self, field.name), 1)
