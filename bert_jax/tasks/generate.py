"""Texts that a model writes: after a prompt (GPT), or for a text (translation, T5)."""

import collections
import dataclasses
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bert_jax.checkpoints.generation_config import GenerationDefaults, generation_defaults
from bert_jax.data.examples import Example, Text
from bert_jax.data.outputs import float32_repr
from bert_jax.data.pipeline import Batch
from bert_jax.files.paths import DESCRIPTION
from bert_jax.generation.decoder import Generated
from bert_jax.models.head import find_head, heads_with
from bert_jax.models.heads.text_to_text import start_token
from bert_jax.tasks.base.generation_options import GenerationOptions
from bert_jax.tasks.base.model_decoder import generate_after_prompts, generate_from_texts
from bert_jax.tasks.base.predict_spec import (
    TEXTS,
    OutputFile,
    PredictSpec,
    TextPredictOptions,
    without_columns,
)
from bert_jax.tasks.base.predictor import (
    EncodedExample,
    ExampleError,
    Model,
    check_finite,
    check_head,
)
from bert_jax.tasks.base.text_rows import TextPredictor
from bert_jax.tokenization import Encoding


@dataclasses.dataclass(frozen=True)
class GeneratePredictOptions(TextPredictOptions, GenerationOptions):
    """The options of `predict`: of texts, and of the generation."""

    def __post_init__(self) -> None:
        TextPredictOptions.__post_init__(self)
        GenerationOptions.__post_init__(self)


@dataclasses.dataclass(frozen=True)
class Generation:
    """A text that a model has written.

    Attributes:
        text: the text, without special tokens; after a prompt, without the prompt.
        token_ids: ids of its tokens, with the end token if there is one.
        score: its log-probability, divided by the length penalty, see `SearchOptions`.
    """

    text: str
    token_ids: list[int]
    score: float


@dataclasses.dataclass(frozen=True)
class _Prompt(Encoding):
    """An encoded text with the number of equal texts before it, which get other samples."""

    repetition: int = 0


class GenerationPredictor(TextPredictor[list[Generation]]):
    """Texts that a model writes for texts, or after prompts; the best generation first.

    Samples depend on the seed and the text alone. Of equal texts that are read together, in one
    chunk of the engine, each has its own. An encoder-decoder writes an empty text for a text of
    white space alone; a prompt without a text begins one.

    Attributes:
        start: id of the token before the first one that an encoder-decoder writes.
    """

    packs_rows = False
    batch_work = 1 << 20  # each batch takes all steps of the decoder: a few are best

    def __init__(self, model: Model, options: GeneratePredictOptions) -> None:
        """Checks that the model can generate, and has positions for the new tokens.

        Raises:
            UserError: the model does not generate.
            OptionError: an option is wrong, or the model has too few positions.
        """
        check_head(
            model, heads_with("generates"), "generate text", "an encoder fills masks: use fill_mask"
        )
        defaults = defaults_of(model)
        defaults.check_vocabulary(model.config.vocab_size)
        self._is_causal = not _has_decoder(model)
        has_limit = self._is_causal or model.config.position_kind != "relative"
        positions = model.config.max_length if has_limit else None
        # An encoder-decoder begins with a token of its own.
        self._search = options.search(defaults, None if self._is_causal else 1, positions)
        rules = options.rules(defaults)
        size = min(model.tokenizer.vocab_size, model.config.vocab_size)
        self._rules = dataclasses.replace(rules, vocab_size=size)
        self._seed = options.seed
        self.start = defaults.decoder_start_token_id
        if self.start is None and not self._is_causal:
            self.start = start_token(model.config)
        self._bos = defaults.bos_token_id
        super().__init__(model, options, refusal=self._too_long if self._is_causal else None)

    @property
    def limit(self) -> int:
        """Maximum tokens of a text, or of a prompt before the generated tokens."""
        if not self._is_causal:
            return super().limit
        most = self.model.config.max_length - self._search.max_new_tokens
        return min(most, self.options.max_length or most)

    def _too_long(self, length: int, limit: int) -> str:
        problem = f"the prompt has {length} tokens"
        positions, new = self.model.config.max_length, self._search.max_new_tokens
        if limit < positions - new:
            return f"{problem}, max_length is {limit}: shorten it, or raise max_length"
        return (
            f"{problem}; {positions} positions less {new} new ones leave {limit}: shorten it, or "
            "lower max_new_tokens"
        )

    def encode(self, examples: Sequence[Text]) -> Sequence[EncodedExample | ExampleError]:
        seen: collections.Counter[tuple[int, ...]] = collections.Counter()
        encoded: list[EncodedExample | ExampleError] = []
        for each in super().encode(examples):
            if isinstance(each, ExampleError):
                encoded.append(each)
                continue
            row = each.rows[0] if each.rows[0].ids else self._empty_prompt()
            if isinstance(row, Encoding):
                key = tuple(row.ids)
                row = _Prompt(**vars(row), repetition=seen[key])
                seen[key] += 1
            encoded.append(EncodedExample([row], each.counts) if isinstance(row, Encoding) else row)
        return encoded

    def _empty_prompt(self) -> Encoding | ExampleError:
        """The prompt without text: the token at the beginning of a text."""
        if self._bos is None or self._bos >= self.model.tokenizer.vocab_size:
            return ExampleError("the prompt is empty, and the model has no bos_token; give a text")
        token = self.model.tokenizer.id_to_token(self._bos)
        return Encoding([self._bos], [token], [(0, 0)], [None], [0], [1])

    def inputs(self, arrays: Batch, rows: Mapping[int, Encoding]) -> Batch:
        """With `keys`, uint32 [B, 2], if tokens are sampled."""
        batch = {name: arrays[name].copy() for name in ("input_ids", "attention_mask")}
        keys = np.zeros((len(batch["input_ids"]), 2), np.uint32)
        for row, prompt in rows.items():
            assert isinstance(prompt, _Prompt)
            digest = zlib.crc32(np.array(prompt.ids, np.int32).tobytes(), prompt.repetition)
            keys[row] = self._seed, digest
        # A search ends with the last row: padding ends with the first text.
        padding = [row for row in range(len(keys)) if row not in rows]
        if rows and padding:
            for array in (*batch.values(), keys):
                array[padding] = array[next(iter(rows))]
        return batch | ({"keys": keys} if self._search.temperature else {})

    def warm_up_inputs(self, arrays: Batch) -> Iterator[Batch]:
        arrays["attention_mask"][:, 0] = 1
        yield self.inputs(arrays, {})

    def compute(self, batch: dict[str, jax.Array]) -> Any:
        params, module = self.model.compute_params, self.model.module
        search = {"module": module, "rules": self._rules, "options": self._search}
        if self._is_causal:
            return generate_after_prompts(params, batch, **search)
        return generate_from_texts(params, batch, start=self.start, **search)

    def decode(
        self, example: Text, encoded: EncodedExample, outputs: list[Any]
    ) -> list[Generation]:
        # An encoder-decoder writes some text for the end token alone.
        if encoded.counts.empty and not self._is_causal:
            return [Generation("", [], 0.0)]
        return self.decode_row(encoded.rows[0], outputs[0])

    def decode_row(self, encoding: Encoding, output: Generated) -> list[Generation]:
        made = []
        for ids, length, score in zip(*output, strict=True):
            if length:
                check_finite(score, "the scores of generated tokens")
                tokens = ids[:length].tolist()
                made.append(Generation(self.model.tokenizer.decode(tokens), tokens, float(score)))
        return made


def _has_decoder(model: Model) -> bool:
    """Whether a decoder writes for the encoder's text; else the model continues prompts."""
    head = model.description.head
    return head is not None and find_head(head).compared.has_decoder


def defaults_of(model: Model) -> GenerationDefaults:
    """How a model generates: by its files, or by its tokenizer if it was made in memory."""
    description = model.description
    if description.generation is not None:
        return description.generation
    special, other = model.tokenizer.special_ids, description.other
    known = {"bos_token_id": special.bos, "eos_token_id": special.eos, "pad_token_id": special.pad}
    fields = {key: value for key, value in known.items() if value is not None} | dict(other)
    if _has_decoder(model):
        fields["decoder_start_token_id"] = start_token(model.config)
    return generation_defaults(Path(DESCRIPTION), fields)


def to_record(text: Text, generations: list[Generation]) -> Mapping[str, Any]:
    """The generations of a text as the fields of a JSON line."""
    return {
        "generations": [
            {"text": each.text, "token_ids": each.token_ids, "score": float32_repr(each.score)}
            for each in generations
        ]
    }


def _line(example: Example[Text], generations: list[Generation]) -> str:
    """The best generation of a text as a line, with blanks for line breaks."""
    text = generations[0].text if generations else ""
    return " ".join(text.splitlines()) + "\n"


PREDICT = PredictSpec(
    TEXTS,
    GeneratePredictOptions,
    GenerationPredictor,
    to_record,
    formats={"text": without_columns(OutputFile(_line))},
    endings={".txt": "text"},
    heads=heads_with("generates"),
)
