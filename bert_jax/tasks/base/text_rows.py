"""Texts and pairs of texts as rows of tokens, one row each: the encoding that most tasks share."""

import abc
import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from bert_jax.data.readers.texts import Text
from bert_jax.models.config import EncoderConfig
from bert_jax.process import say
from bert_jax.tasks.base.predictor import BatchOptions, ExampleError, Model, Predictor
from bert_jax.tokenization import Encoding, Tokenizer, WordPieceTokenizer

Prediction = TypeVar("Prediction")

# A text with more characters per token of the limit is shortened before it is tokenised.
_CHARACTERS_PER_TOKEN = 16
# How far back a word boundary is searched for, in characters.
_LONGEST_WORD = 1000
_BREAKS = re.compile("[ \n]")
# Each Chinese character is a word.
_BREAKS_OR_CHINESE = re.compile("[ \n\u4e00-\u9fff]")


class TextEncoder:
    """Encodes each text as one row, cut to a limit.

    Attributes:
        count: texts encoded so far.
        cut: number of these texts that were longer than the limit.
    """

    def __init__(
        self, tokenizer: Tokenizer, config: EncoderConfig, limit: int, *, refuse_long: bool = False
    ) -> None:
        """Starts both counters at 0; for `limit` see `BatchOptions.limit`."""
        self.count = self.cut = 0
        self._tokenizer = tokenizer
        self._config = config
        self._limit = limit
        self._refuse_long = refuse_long

    def __call__(self, texts: Sequence[Text]) -> list[list[Encoding]]:
        """One row for each text.

        Raises:
            ExampleError: an element is not a text, or a text is too long and `refuse_long` is set.
        """
        encodings, too_long = self._encode(
            texts if self._refuse_long else [self._shortened(text) for text in texts]
        )
        if too_long and self._refuse_long:
            index, length = min(too_long.items())
            raise ExampleError(
                f"the text has {length} tokens, the model takes {self._limit}; shorten it, or set "
                "the maximum length to cut it",
                self.count + index,
            )
        self.count += len(texts)
        self.cut += len(too_long)
        return [[encoding] for encoding in encodings]

    def check(self, text: Text, index: int) -> None:
        """Raises ExampleError if it is not a text, or a pair that the model cannot take."""
        if isinstance(text, str):
            return
        if not isinstance(text, tuple) or [type(part) for part in text] != [str, str]:
            raise ExampleError(
                f"text {index} is {text!r:.80}; give a string or a pair of strings", index
            )
        if not self._tokenizer.supports_pairs(self._config.type_vocab_size):
            raise ExampleError(
                "the text is a pair, but the model has one segment only (type_vocab_size 1); "
                "join the two texts",
                index,
            )

    def report(self) -> None:
        """Prints a line to stderr if texts were cut."""
        if self.cut:
            say(f"{self.cut} of {self.count} texts were longer than {self._limit} tokens: cut")

    def _shortened(self, text: Text) -> Text:
        """A prefix of a very long text that is cut to the same tokens as the whole text."""
        is_short = text_characters(text) <= _CHARACTERS_PER_TOKEN * self._limit
        if is_short or self._tokenizer.truncation_side == "left":
            return text
        if isinstance(text, str):
            return beginning(self._tokenizer, text, self._limit)
        first, second = text
        # Which side of a pair is cut depends on both lengths, so the longer text is shortened only
        # if the shorter one fits.
        if len(first) < len(second):
            enough = self._fits(first)
            return (first, beginning(self._tokenizer, second, self._limit)) if enough else text
        enough = self._fits(second)
        return (beginning(self._tokenizer, first, self._limit), second) if enough else text

    def _fits(self, text: str) -> bool:
        (encoding,) = self._tokenizer.encode_batch([text], add_special_tokens=False)
        return len(encoding) <= self._limit

    def _encode(self, texts: Sequence[Text]) -> tuple[list[Encoding], dict[int, int]]:
        """The encoding of each text, cut, and {index: length} of the texts that were too long."""
        encodings = self._encoded(dict(enumerate(texts)))
        lengths = {index: len(encoding) for index, encoding in encodings.items()}
        too_long = {index: length for index, length in lengths.items() if length > self._limit}
        # Only the tokenizer knows where a pair is cut.
        encodings |= self._encoded({index: texts[index] for index in too_long}, self._limit)
        return [encodings[index] for index in range(len(texts))], too_long

    def _encoded(
        self, texts: Mapping[int, Text], max_length: int | None = None
    ) -> dict[int, Encoding]:
        """{index: encoding} of {index: text or pair}."""
        encode = functools.partial(self._tokenizer.encode_batch, max_length=max_length)
        single = {index: text for index, text in texts.items() if isinstance(text, str)}
        pairs = {index: text for index, text in texts.items() if not isinstance(text, str)}
        encodings = dict(zip(single, encode(list(single.values())), strict=True)) if single else {}
        if pairs:
            firsts, seconds = zip(*pairs.values(), strict=True)
            encodings |= zip(pairs, encode(firsts, seconds), strict=True)
        return encodings


class TextPredictor(Predictor[Text, Prediction]):
    """A predictor whose examples are texts or pairs of texts, one row each.

    Subclasses define what is computed and how each row of the result becomes a prediction.
    """

    def __init__(self, model: Model, options: BatchOptions, *, refuse_long: bool = False) -> None:
        """Args: `refuse_long`: whether a text above the limit is an error; otherwise it is cut."""
        super().__init__(model, options)
        self.rows = TextEncoder(model.tokenizer, model.config, self.limit, refuse_long=refuse_long)

    def prepare(self, example: Text, index: int) -> Text:
        self.rows.check(example, index)
        return example

    def encode(self, examples: Sequence[Text]) -> list[list[Encoding]]:
        return self.rows(examples)

    def decode(self, example: Text, encodings: Sequence[Encoding], outputs: list[Any]) -> Any:
        return self.decode_row(encodings[0], outputs[0])

    @abc.abstractmethod
    def decode_row(self, encoding: Encoding, output: Any) -> Prediction:
        """The prediction from the tokens of a text and its row of the result of `compute`."""

    def characters(self, example: Text) -> int:
        return text_characters(example)

    def report(self) -> None:
        self.rows.report()


def beginning(tokenizer: Tokenizer, text: str, tokens: int) -> str:
    """A prefix of a text whose first `tokens` tokens are those of the whole text.

    It ends between two words: BERT's rules never look across a word boundary. A tokenizer with
    other rules gets the whole text, as does one that cuts on the left, and a text without such a
    boundary.
    """
    if not isinstance(tokenizer, WordPieceTokenizer) or tokenizer.switches is None:
        return text
    if tokenizer.truncation_side == "left":
        return text
    breaks = _BREAKS_OR_CHINESE if tokenizer.switches.tokenize_chinese_chars else _BREAKS
    size = _CHARACTERS_PER_TOKEN * tokens
    while size < len(text):
        start = max(size - _LONGEST_WORD, 0)
        *_, end = 0, *(start + match.start() for match in breaks.finditer(text[start:size]))
        if end:
            (encoding,) = tokenizer.encode_batch([text[:end]], add_special_tokens=False)
            if len(encoding) > tokens:
                return text[:end]
        size *= 4
    return text


def text_characters(text: Text) -> int:
    """The length of a text or a pair in characters."""
    return len(text) if isinstance(text, str) else len(text[0]) + len(text[1])
