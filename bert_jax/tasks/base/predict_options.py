"""How a file is answered: every option of `bert-jax predict` that is not a place or a model."""

import dataclasses

from bert_jax.errors import OptionError

# What counts rows, tokens or answers.
_COUNTS = ("top_k", "batch_size", "window_step", "answer_length")


@dataclasses.dataclass(frozen=True)
class PredictOptions:
    """How a file is answered; each task takes what concerns it.

    Attributes:
        input_format: "jsonl", "tsv", "csv", "text", "glue:NAME", "conll" or "squad", whichever the
            task reads; None: by the ending of the file's name.
        output_format: a key of the task's `formats`; None: by the ending of the output's name,
            else "jsonl".
        text_column: the column or key of the text, or a number from 0; None: a usual name, see
            `data.labelled.columns`.
        pair_column: that of its pair.
        label_column: that of the right answer, which the output keeps.
        id_column: that of the id.
        question_column: of "question_answering", that of the question.
        passage_column: that of the passage.
        word_column: of "tagging", the column of the words in CoNLL files, from 0.
        separator: between columns of CoNLL files: None for white space, or "tab".
        comments: how lines of CoNLL files begin that are no words; None: there are none.
        header: whether the first line of a table names its columns.
        quotes: what quotation marks in a table mean, see `TableOptions`.
        pooling: of "embed" and "similarity", see `LoadedModel.embed`; None: the mean, or for
            "similarity" what the model was trained with.
        normalize: of "embed".
        layers: of "hidden_states" and "attentions", see there; None: the last, and all.
        combine: of "hidden_states".
        top_k: how many answers; None: of "fill_mask" 5, of "question_answering" 1, and 20 in the
            file of the best ones.
        null_threshold: of "question_answering", see `answering.answer`.
        window_step: of "question_answering", see `AnswerOptions`.
        answer_length: likewise.
        batch_size: the most rows computed together; None: 32, of "attentions" 8.
        max_length: the most tokens of a row; None for as many as the model takes, of
            "question_answering" 384 at most.
        progress: whether a bar is shown on stderr.
    """

    input_format: str | None = None
    output_format: str | None = None
    text_column: str | None = None
    pair_column: str | None = None
    label_column: str | None = None
    id_column: str | None = None
    question_column: str | None = None
    passage_column: str | None = None
    word_column: int = 0
    separator: str | None = None
    comments: str | None = None
    header: bool = True
    quotes: str = "auto"
    pooling: str | None = None
    normalize: bool = False
    layers: tuple[int, ...] | None = None
    combine: str | None = None
    top_k: int | None = None
    null_threshold: float | None = None
    window_step: int = 128
    answer_length: int = 30
    batch_size: int | None = None
    max_length: int | None = None
    progress: bool = True

    def __post_init__(self) -> None:
        for name in _COUNTS:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise OptionError(name, value, "it must be at least 1")
