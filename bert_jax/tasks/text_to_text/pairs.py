"""Sources and targets as token ids, for the rows of a training or an evaluation."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

from bert_jax.data.examples import Example, Text
from bert_jax.data.pair_rows import EncodedPairs
from bert_jax.models.config import EncoderConfig
from bert_jax.models.heads.text_to_text import start_token
from bert_jax.tasks.base.labelled_task import encode_in_chunks, sequences_of
from bert_jax.tasks.base.predictor import EncodingCounts
from bert_jax.tasks.base.text_rows import TextEncoder
from bert_jax.tokenization import Tokenizer


class PairNotes(NamedTuple):
    """How many texts were cut, of either side."""

    sources: EncodingCounts
    targets: EncodingCounts


@dataclasses.dataclass(frozen=True)
class PairEncoder:
    """Encodes sources, and the first accepted target of each.

    Attributes:
        tokenizer: tokenizer of the model.
        config: architecture of the model.
        source_length: maximum number of tokens of a source; a longer one is cut.
        target_length: the same of a target.
        prefix: text before every source.
    """

    tokenizer: Tokenizer
    config: EncoderConfig
    source_length: int
    target_length: int
    prefix: str = ""

    @property
    def sources(self) -> TextEncoder:
        """Encodes sources."""

        def prepare(text: Text) -> Text:
            return f"{self.prefix}{text}"

        return TextEncoder(self.tokenizer, self.config, self.source_length, prepare=prepare)

    @property
    def targets(self) -> TextEncoder:
        """Encodes targets."""
        return TextEncoder(self.tokenizer, self.config, self.target_length, is_target=True)

    def __call__(self, examples: Sequence[Example[str]]) -> tuple[EncodedPairs, PairNotes]:
        """The pairs of examples with labels, `readers.parallel.Targets`.

        Raises:
            UserError: a text cannot be encoded; the message names its location.
        """
        encoded = encode_in_chunks(self.sources, examples)
        sources, _, source_notes = sequences_of(encoded, self.tokenizer)
        encoded = encode_in_chunks(self.targets, examples, lambda example: example.label[0])
        targets, _, target_notes = sequences_of(encoded, self.tokenizer)
        pairs = EncodedPairs(
            sources,
            targets,
            self.source_length,
            self.target_length,
            start_token(self.config),
            self.tokenizer,
        )
        return pairs, PairNotes(source_notes, target_notes)
