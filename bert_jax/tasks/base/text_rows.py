"""Texts and pairs of texts as rows of tokens, one row each: the encoding that most tasks share."""

import abc
import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from bert_jax.data.examples import Text, texts_of
from bert_jax.models.config import EncoderConfig
from bert_jax.tasks.base.predictor import (
    BatchOptions,
    EncodedExample,
    EncodingCounts,
    ExampleError,
    Model,
    Predictor,
    is_sequence_of_texts,
)
from bert_jax.tokenization import Encoding, Tokenizer
from bert_jax.tokenization.encoding import half_surrogate

Input = TypeVar("Input")
Output = TypeVar("Output")
Prediction = TypeVar("Prediction")

# A text with more characters per token of the limit is shortened before it is tokenised.
_CHARACTERS_PER_TOKEN = 16
# How far back a word boundary is searched for, in characters.
_LONGEST_WORD = 1000


def too_long(length: int, limit: int) -> str:
    """Why a text of so many tokens is refused."""
    return (
        f"the text has {length} tokens, the model takes {limit}; shorten it, or set the maximum "
        "length to cut it"
    )


@dataclasses.dataclass(frozen=True)
class TextEncoder:
    """Encodes each text as one row, cut to a limit.

    Attributes:
        tokenizer: tokenizer of the model.
        config: architecture of the model.
        limit: maximum number of tokens, see `BatchOptions.limit`.
        refusal: number of tokens, limit → why a longer text is refused; None: it is cut.
        prepare: changes a text before it is tokenised.
        is_target: whether the texts are single ones that an encoder-decoder writes.
    """

    tokenizer: Tokenizer
    config: EncoderConfig
    limit: int
    refusal: Callable[[int, int], str] | None = None
    prepare: Callable[[Text], Text] = lambda text: text
    is_target: bool = False

    def __call__(self, texts: Sequence[Any]) -> list[EncodedExample | ExampleError]:
        """The row of each text, or why it has none."""
        errors = {index: error for index, text in enumerate(texts) if (error := self._error(text))}
        prepared = {
            index: self._shortened(self.prepare(text))
            for index, text in enumerate(texts)
            if index not in errors
        }
        encodings = self._encoded(prepared)
        longer = {index: len(each) for index, each in encodings.items() if len(each) > self.limit}
        if self.refusal:
            errors |= {
                index: ExampleError(self.refusal(length, self.limit))
                for index, length in longer.items()
            }
        else:  # only the tokenizer knows where a pair is cut
            encodings |= self._encoded({index: prepared[index] for index in longer}, self.limit)
        return [
            errors.get(index)
            or EncodedExample(
                [encodings[index]],
                EncodingCounts(cut=index in longer, empty=not ("".join(text)).strip()),
            )
            for index, text in enumerate(texts)
        ]

    def groups(
        self, examples: Sequence[Sequence[Text] | ExampleError]
    ) -> list[EncodedExample | ExampleError]:
        """Examples of several texts: each has a row for each of its texts."""

        def encode(valid: list[Sequence[Text]]) -> list[EncodedExample | ExampleError]:
            encoded = iter(self([text for texts in valid for text in texts]))
            return [_joined([next(encoded) for _ in texts]) for texts in valid]

        return map_valid(examples, encode)

    def _error(self, text: Any) -> ExampleError | None:
        if isinstance(text, str):
            return text_error(text)
        if not (isinstance(text, tuple) and len(text) == 2 and is_sequence_of_texts(text)):
            return ExampleError(f"{text!r:.80} is no text; give a string or a pair of strings")
        if self.tokenizer.supports_pairs(self.config.type_vocab_size):
            return text_error(*text)
        return ExampleError(
            "the text is a pair, but the model has one segment only (type_vocab_size 1); "
            "join the two texts"
        )

    def _shortened(self, text: Text) -> Text:
        """A prefix of a very long text that is cut to the same tokens as the whole text."""
        is_short = sum(map(len, texts_of(text))) <= _CHARACTERS_PER_TOKEN * self.limit
        if is_short or self.refusal or self.tokenizer.truncation_side == "left":
            return text
        if isinstance(text, str):
            return beginning(self.tokenizer, text, self.limit)
        first, second = text
        # Which side of a pair is cut depends on both lengths, so the longer text is shortened only
        # if the shorter one fits.
        if len(first) < len(second):
            enough = self._fits(first)
            return (first, beginning(self.tokenizer, second, self.limit)) if enough else text
        enough = self._fits(second)
        return (beginning(self.tokenizer, first, self.limit), second) if enough else text

    def _fits(self, text: str) -> bool:
        (encoding,) = self.tokenizer.encode_batch([text], add_special_tokens=False)
        return len(encoding) <= self.limit

    def _encoded(
        self, texts: Mapping[int, Text], max_length: int | None = None
    ) -> dict[int, Encoding]:
        """{index: encoding} of {index: text or pair}."""
        tokenizer = self.tokenizer
        method = tokenizer.encode_targets if self.is_target else tokenizer.encode_batch
        encode: Callable[..., list[Encoding]] = functools.partial(method, max_length=max_length)
        single = {index: text for index, text in texts.items() if isinstance(text, str)}
        pairs = {index: text for index, text in texts.items() if not isinstance(text, str)}
        encodings = dict(zip(single, encode(list(single.values())), strict=True)) if single else {}
        if pairs:
            firsts, seconds = zip(*pairs.values(), strict=True)
            encodings |= zip(pairs, encode(firsts, seconds), strict=True)
        return encodings


def _joined(parts: Sequence[EncodedExample | ExampleError]) -> EncodedExample | ExampleError:
    """The rows of all parts of an example, or the first error."""
    encoded = []
    for part in parts:
        if isinstance(part, ExampleError):
            return part
        encoded.append(part)
    rows = [row for part in encoded for row in part.rows]
    return EncodedExample(rows, EncodingCounts.total(part.counts for part in encoded))


class TextPredictor(Predictor[Text, Prediction]):
    """A predictor of texts and pairs of texts, one row each.

    Subclasses define how each row of the result becomes a prediction, and may define another
    computation.
    """

    def __init__(
        self,
        model: Model,
        options: BatchOptions,
        *,
        refusal: Callable[[int, int], str] | None = None,
        prepare: Callable[[Text], Text] = lambda text: text,
    ) -> None:
        """Takes `refusal` and `prepare` of the `TextEncoder`."""
        super().__init__(model, options)
        self.encode_texts = TextEncoder(model.tokenizer, model.config, self.limit, refusal, prepare)

    def encode(self, examples: Sequence[Text]) -> Sequence[EncodedExample | ExampleError]:
        return self.encode_texts(examples)

    def decode(self, example: Text, encoded: EncodedExample, outputs: list[Any]) -> Any:
        return self.decode_row(encoded.rows[0], outputs[0])

    @abc.abstractmethod
    def decode_row(self, encoding: Encoding, output: Any) -> Prediction:
        """The prediction from the tokens of a text and its row of the result of `compute`."""


def beginning(tokenizer: Tokenizer, text: str, tokens: int) -> str:
    """A prefix of a text that has the same first `tokens` tokens as the whole text.

    It ends at one of `Tokenizer.word_breaks`. It is the whole text if there are none, or the
    tokenizer cuts on the left.
    """
    breaks = tokenizer.word_breaks
    if breaks is None or tokenizer.truncation_side == "left":
        return text
    size = _CHARACTERS_PER_TOKEN * tokens
    while size < len(text):
        start = max(size - _LONGEST_WORD, 0)
        *_, end = 0, *(match.start() for match in breaks.finditer(text, start, size))
        if end:
            (encoding,) = tokenizer.encode_batch([text[:end]], add_special_tokens=False)
            if len(encoding) > tokens:
                return text[:end]
        size *= 4
    return text


def map_valid(
    items: Iterable[Input | ExampleError], function: Callable[[list[Input]], Iterable[Output]]
) -> list[Output | ExampleError]:
    """What a function makes of the items that are no error, with the errors in their places."""
    items = list(items)
    results = iter(function([each for each in items if not isinstance(each, ExampleError)]))
    return [each if isinstance(each, ExampleError) else next(results) for each in items]


def text_error(*texts: Any) -> ExampleError | None:
    """Why the texts of an example cannot be encoded; None if they can.

    Each must be a string without half of a surrogate pair, which JSON can contain.
    """
    for text in texts:
        if not isinstance(text, str):
            return ExampleError(f"{text!r:.80} is no text; give strings")
        if problem := half_surrogate(text):
            return ExampleError(f"text, {problem}")
    return None
