"""The tags of a tagger: their scheme, and how they are decoded from the scores of words."""

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.data.examples import Example, Sentence
from bert_jax.data.padding import bucket_length, bucket_rows
from bert_jax.data.readers.conll import OUTSIDE
from bert_jax.errors import OptionError, UserError, require_one_of
from bert_jax.metrics.entities import Scheme, convert, detect_scheme, spans, split_tag
from bert_jax.models.crf import IMPOSSIBLE, CRFParams, marginals, viterbi
from bert_jax.tasks.base.labels import choose_labels, drop_labels
from bert_jax.tasks.base.model_init import ModelInit
from bert_jax.tasks.base.predictor import softmax
from bert_jax.tasks.base.splits import EvalSet

# A prefix of BIOES and the type of the entity.
Tag = tuple[str, str]

SCHEMES = ("iob2", "bioes")
"""Schemes that models learn. In IOB1 a tag does not tell whether an entity begins."""

# The most sentences and words that Viterbi decoding holds in memory at once.
_ROWS = 64
_WORDS = 1 << 14


@dataclasses.dataclass(frozen=True)
class TagSet:
    """The tags of a model.

    Attributes:
        labels: names of the tags, in the order of their numbers.
        scheme: scheme that marks entities; None: the tags mark none, such as parts of speech.
    """

    labels: tuple[str, ...]
    scheme: Scheme | None

    @functools.cached_property
    def types(self) -> set[str]:
        """The types of entities."""
        return _types(self.labels)

    def translate(self, tags: Sequence[str]) -> list[str]:
        """Tags of any scheme, translated to the scheme of the model."""
        return list(tags) if self.scheme is None else convert(tags, self.scheme)

    def numbers(self, tags: Sequence[str]) -> np.ndarray:
        """Numbers of tags of any scheme, int32 [W]; the tags must be known, see `check`."""
        return np.array([self.labels.index(tag) for tag in self.translate(tags)], np.int32)

    def comparable(
        self, examples: Sequence[Example[Sentence]], tags: Sequence[Sequence[str]]
    ) -> tuple[list[Sequence[str]], list[Sequence[str]]]:
        """Gold and predicted tags in the scheme of the gold tags.

        So conlleval, which compares the columns of our files as strings, gives the same metrics.
        (It also counts lines of -DOCSTART- as words, and does not know M, L, U and W, which are
        read as BIOES by this module.)

        Args:
            examples: sentences with tags.
            tags: predicted tags of each sentence.
        """
        gold: list[Sequence[str]] = [example.label or () for example in examples]
        scheme = detect_scheme(gold) if self.scheme else None
        if scheme is None:
            return gold, list(tags)
        if any(tag[0] not in "BIOES" for sentence in gold for tag in sentence):
            gold = [convert(sentence, scheme) for sentence in gold]
        return gold, [convert(sentence, scheme) for sentence in tags]

    def knows(self, tag: str) -> bool:
        """Whether a tag of any scheme corresponds to a tag of the model."""
        if self.scheme is None:
            return tag in self.labels
        return split_tag(tag) is not None and _types([tag]) <= self.types

    def check(self, sentences: Iterable[Example[Sentence]]) -> None:
        """Refuses tags that the model does not know.

        Raises:
            OptionError: a tag is unknown; the message names file and line of its sentence.
        """
        for sentence, word, tag in self._unknown(sentences):
            has_types = self.scheme is not None and not self.knows(tag)
            what = "types of entities" if has_types else "tags"
            known = sorted(self.types) if has_types else self.labels
            raise OptionError(
                "data.labels",
                self.labels,
                "fix the data, train with examples of it, or name all tags with {data.labels}",
                problem=f"{sentence.location}: the tag {tag!r} of {word!r} is unknown to the "
                f"model, which has the {what} {', '.join(known)}",
            )

    def drop_unknown_tags(self, eval_set: EvalSet[Sentence]) -> EvalSet[Sentence]:
        """Test sentences, without their tags if the model does not know all of them.

        The last column of a file without tags is something else.
        """
        unknown = next(iter(self._unknown(eval_set.examples)), None)
        if unknown is None:
            return eval_set
        reason = f"the model has no tags such as {unknown[2]!r}"
        return drop_labels(eval_set, reason)

    def _unknown(
        self, sentences: Iterable[Example[Sentence]]
    ) -> Iterable[tuple[Example[Sentence], str, str]]:
        """The words with an unknown tag, or one that is unknown in the scheme of the model."""
        for sentence in sentences:
            tags = sentence.label or ()
            unknown = [not self.knows(tag) for tag in tags]
            if not any(unknown):
                tags = self.translate(tags)
                unknown = [tag not in self.labels for tag in tags]
            for word, tag, is_unknown in zip(sentence.input.words, tags, unknown, strict=False):
                if is_unknown:
                    yield sentence, word, tag


def find_tag_set(
    train: Sequence[Example[Sentence]],
    model_init: ModelInit,
    scheme: str,
    named: tuple[str, ...],
) -> TagSet:
    """The tags to learn: O first, then the others alphabetically.

    Unless the config names the tags, every entity type gets all tags of the scheme, also tags of no
    training sentence, such as I-PER if no name has two words.

    Args:
        train: tagged sentences; empty if a finished model is evaluated.
        model_init: the model that the training starts from, or that is evaluated.
        scheme: one of `SCHEMES`, used if the tags mark entities.
        named: tags named in the config, in their order; for a finished model only if it does not
            name its own (LABEL_0, LABEL_1, … are not names).

    Raises:
        UserError: a tag marks no entity although others do, or the tags of the model, the config
            and the data differ.
    """
    require_one_of("data.scheme", scheme, SCHEMES)
    if model_init.is_finished and model_init.description:
        return _of_finished_model(model_init.description, named)
    tags = {tag for sentence in train for tag in sentence.label or ()}
    if not any("-" in tag and split_tag(tag) for tag in tags):
        return TagSet(_ordered(tags, model_init, named), None)
    for sentence in train:
        for word, tag in zip(sentence.input.words, sentence.label or (), strict=False):
            if split_tag(tag) is None:
                raise UserError(
                    f"{sentence.location}: {tag!r}, the tag of {word!r}, marks no entity, as "
                    "others do; give O, or B-, I-, E-, S- and a type"
                )
    if named:
        locations = {
            tag: sentence.location
            for sentence in train
            for tag in convert(sentence.label or (), cast(Scheme, scheme))
        }
        return TagSet(choose_labels(locations, model_init, named), cast(Scheme, scheme))
    prefixes = "BI" if scheme == "iob2" else "BIES"
    required = {OUTSIDE}
    for entity_type in _types(tags):
        suffix = f"-{entity_type}" if entity_type else ""
        required |= {prefix + suffix for prefix in prefixes}
    return TagSet(_ordered(required, model_init, named), cast(Scheme, scheme))


def _of_finished_model(description: ModelDescription, named: tuple[str, ...]) -> TagSet:
    labels, outputs = description.labels, description.config.num_labels
    if all(name == f"LABEL_{number}" for number, name in enumerate(labels)) and named:
        if len(named) != outputs:
            rule = f"name as many tags as the model has, {outputs}"
            raise OptionError("data.labels", named, rule)
        labels = named
    if not labels:
        rule = f"name them in their order with {{data.labels}}, {outputs} in all"
        problem = "the model does not name its tags (id2label in config.json)"
        raise OptionError("data.labels", named, rule, problem)
    return TagSet(labels, scheme_of(labels))


def scheme_of(labels: Sequence[str]) -> Scheme | None:
    """The scheme of a model's labels; None where they mark no entities."""
    if detect_scheme([labels]) is None:
        return None
    if any(label[0] in "ES" for label in labels):
        return "bioes"
    beginning = _types(label for label in labels if label.startswith("B"))
    return "iob2" if beginning == _types(labels) else "iob1"


def _ordered(tags: set[str], model_init: ModelInit, named: tuple[str, ...]) -> tuple[str, ...]:
    """The tags as ordered by `choose_labels`; where that leaves the order open, O is first."""
    labels = choose_labels(tags, model_init, named)
    known = model_init.description.labels if model_init.description else ()
    if OUTSIDE not in labels or named or labels == known:
        return labels
    return (OUTSIDE, *(label for label in labels if label != OUTSIDE))


def _types(tags: Iterable[str]) -> set[str]:
    return {entity.type for tag in tags for entity in spans([tag])}


def entity_tags(tags: Sequence[str], labels: Sequence[str]) -> Sequence[str] | None:
    """The tags of a model that mark entities; None if its labels do not.

    If labels have no prefixes but one is O, adjacent words with the same label are one entity.
    """
    if detect_scheme([labels]) is not None:
        return tags
    if OUTSIDE in labels:
        return [tag if tag == OUTSIDE else f"I-{tag}" for tag in tags]
    return None


class Decoded(NamedTuple):
    """Decoded tags of W words.

    Attributes:
        tags: label numbers, int [W].
        scores: probability of each of these tags, float [W].
    """

    tags: np.ndarray
    scores: np.ndarray


def argmax_decode(sentences: Iterable[np.ndarray]) -> Iterator[Decoded]:
    """The most probable tag of each word.

    Args:
        sentences: scores of the words of each sentence, float32 [W, C].
    """
    for scores in sentences:
        tags = scores.argmax(axis=-1)
        yield Decoded(tags, np.take_along_axis(softmax(scores), tags[:, None], axis=-1)[:, 0])


def viterbi_decode(sentences: Iterable[np.ndarray], crf_params: CRFParams) -> Iterator[Decoded]:
    """The most probable path of tags of each sentence; scores are marginal probabilities.

    Args:
        sentences: scores of the words of each sentence, float32 [W, C]; only one group of sentences
            is in memory.
        crf_params: transition scores of the CRF.
    """
    for group in _groups(sentences):
        longest = max(map(len, group))
        rows, words = bucket_rows(len(group), _ROWS, 1), bucket_length(max(longest, 1), 1 << 30)
        emissions = np.zeros((rows, words, len(crf_params.start)), np.float32)
        mask = np.zeros((rows, words), bool)
        for row, scores in enumerate(group):
            emissions[row, : len(scores)] = scores
            mask[row, : len(scores)] = True
        tags, probabilities = jax.device_get(_decode(emissions, mask, crf_params))
        for row, scores in enumerate(group):
            yield Decoded(tags[row, : len(scores)], probabilities[row, : len(scores)])


def mask_invalid_transitions(crf_params: CRFParams, labels: Sequence[str]) -> CRFParams:
    """The parameters without the transitions that IOB2 or BIOES forbid, such as from O to I-PER.

    Training data have none of them, so their scores would hardly be learned. Labels without a
    scheme may follow each other in any order.
    """
    if detect_scheme([labels]) is None:
        return crf_params
    tags = [split_tag(label) or ("O", "") for label in labels]
    closed = any(prefix in "ES" for prefix, _ in tags)

    def penalty(before: Tag, after: Tag) -> float:
        return 0.0 if _may_follow(before, after, closed=closed) else IMPOSSIBLE

    transitions = [[penalty(before, after) for after in tags] for before in tags]
    start = [penalty(("O", ""), tag) for tag in tags]
    end = [penalty(tag, ("O", "")) for tag in tags]
    mask = CRFParams(*(jnp.array(scores) for scores in (transitions, start, end)))
    return jax.tree.map(jnp.add, crf_params, mask)


def _may_follow(before: Tag, after: Tag, *, closed: bool) -> bool:
    """Whether a tag may follow another; `closed`: the scheme marks the ends of entities."""
    (first, type_before), (second, type_after) = before, after
    if second in ("I", "E"):
        return first in ("B", "I") and type_before == type_after
    return not (closed and first in ("B", "I"))


def _groups(sentences: Iterable[np.ndarray]) -> Iterator[list[np.ndarray]]:
    group: list[np.ndarray] = []
    longest = 0
    for scores in sentences:
        longest = max(longest, len(scores))
        if group and (len(group) == _ROWS or longest * (len(group) + 1) > _WORDS):
            yield group
            group, longest = [], len(scores)
        group.append(scores)
    if group:
        yield group


@jax.jit
def _decode(emissions: Any, mask: Any, crf_params: CRFParams) -> tuple[jax.Array, jax.Array]:
    """float32 [B, W, C] → tags, int32 [B, W], and their probabilities, float32 [B, W]."""
    tags = viterbi(emissions, mask, crf_params)
    probabilities = marginals(emissions, mask, crf_params)
    return tags, jnp.take_along_axis(probabilities, tags[..., None], axis=-1)[..., 0]
