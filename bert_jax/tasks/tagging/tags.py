"""The tags of a tagger: their scheme, and how they are decoded from the scores of words."""

import dataclasses
import functools
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.data.examples import Example, Sentence
from bert_jax.data.padding import bucket_length, bucket_rows
from bert_jax.data.readers.conll import with_added_column
from bert_jax.errors import OptionError, require_one_of
from bert_jax.metrics.entities import OUTSIDE, Scheme, detect_scheme
from bert_jax.metrics.tag_names import TagNames
from bert_jax.models.crf import IMPOSSIBLE, CRFParams, marginals, viterbi
from bert_jax.process import say
from bert_jax.sharding.hosts import is_main_host
from bert_jax.tasks.base.labels import choose_labels, drop_labels
from bert_jax.tasks.base.model_init import ModelInit
from bert_jax.tasks.base.predictor import softmax
from bert_jax.tasks.base.splits import EvalSet, Splits

# A prefix of BIOES, "" without one, and the type of the entity.
Tag = tuple[str, str]

SCHEMES = ("iob2", "bioes")
"""Schemes that models learn. In IOB1 a tag does not tell whether an entity begins."""

# The most sentences and words that Viterbi decoding holds in memory at once.
_ROWS = 64
_WORDS = 1 << 14


@dataclasses.dataclass(frozen=True)
class TagSet:
    """The tags of a model.

    Tags of data are as `read_tags` writes them.

    Attributes:
        labels: names of the tags, in the order of their numbers.
        scheme: scheme that marks entities; None: no tag has a prefix.
    """

    labels: tuple[str, ...]
    scheme: Scheme | None

    @functools.cached_property
    def names(self) -> TagNames:
        """What the labels stand for."""
        return TagNames.from_labels(self.labels)

    @functools.cached_property
    def tags(self) -> tuple[str, ...]:
        """The tags that the labels stand for, in the order of their numbers."""
        return tuple(self.names.tags[label] for label in self.labels)

    def translate(self, tags: Sequence[str]) -> list[str]:
        """Tags of any scheme, translated to the scheme of the model."""
        return list(tags) if self.scheme is None else self.names.convert(tags, self.scheme)

    def numbers(self, tags: Sequence[str]) -> np.ndarray:
        """Numbers of tags of any scheme, int32 [W]; the tags must be known, see `check`."""
        return np.array([self.tags.index(tag) for tag in self.translate(tags)], np.int32)

    def scheme_of_gold(self, examples: Iterable[Example[Sentence]]) -> Scheme | None:
        """The scheme of the tags of sentences; None where the model's tags have no prefixes."""
        gold = (self.names.prefixed(example.label or ()) for example in examples)
        return detect_scheme(gold) if self.scheme else None

    def comparable(
        self, examples: Sequence[Example[Sentence]], tags: Sequence[Sequence[str]]
    ) -> tuple[list[Sequence[str]], list[Sequence[str]]]:
        """Gold and predicted tags in the scheme of the gold tags.

        So conlleval, which compares the columns of our files as strings, gives the same metrics.
        (It also counts lines of -DOCSTART- as words.) Where both are in one scheme, predicted tags
        stay as predicted, also an I- that begins an entity: seqeval counts them like this.

        Args:
            examples: sentences with tags.
            tags: predicted labels, or tags, of each sentence.
        """
        names, scheme = self.names, self.scheme_of_gold(examples)
        gold: list[Sequence[str]] = [example.label or () for example in examples]
        predicted: list[Sequence[str]] = [
            [names.tags.get(tag, tag) for tag in sentence] for sentence in tags
        ]
        if scheme is None:
            return gold, predicted
        gold = [each if names.fit(each) else names.convert(each, scheme) for each in gold]
        if scheme != self.scheme:
            predicted = [names.convert(sentence, scheme) for sentence in predicted]
        return gold, predicted

    def knows(self, tag: str) -> bool:
        """Whether a tag of any scheme corresponds to a tag of the model."""
        if self.scheme is None:
            return tag in self.tags
        return tag == OUTSIDE or self.names.split(tag)[1] in self.names.types

    def check(self, sentences: Iterable[Example[Sentence]]) -> None:
        """Refuses tags that the model does not know.

        Raises:
            OptionError: a tag is unknown; the message names file and line of its sentence.
        """
        for sentence, word, tag in self._unknown(sentences):
            has_types = self.scheme is not None and not self.knows(tag)
            what = "types of entities" if has_types else "tags"
            known = sorted(self.names.types) if has_types else self.labels
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
        for *_, tag in self._unknown(eval_set.examples):
            return drop_labels(eval_set, f"the model has no tags such as {tag!r}")
        return eval_set

    def _unknown(
        self, sentences: Iterable[Example[Sentence]]
    ) -> Iterable[tuple[Example[Sentence], str, str]]:
        """The words with an unknown tag, or one that is unknown in the scheme of the model."""
        for sentence in sentences:
            tags = sentence.label or ()
            unknown = [not self.knows(tag) for tag in tags]
            if not any(unknown):
                tags = self.translate(tags)
                unknown = [tag not in self.tags for tag in tags]
            for word, tag, is_unknown in zip(sentence.input.words, tags, unknown, strict=False):
                if is_unknown:
                    yield sentence, word, tag


def find_tag_set(
    train: Sequence[Example[Sentence]], model_init: ModelInit, scheme: str, named: tuple[str, ...]
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
        UserError: the tags of the model, the config and the data differ.
    """
    require_one_of("data.scheme", scheme, SCHEMES)
    if model_init.is_finished and model_init.description:
        return _finished_tag_set(model_init.description, named)
    names = TagNames.from_labels(tag for sentence in train for tag in sentence.label or ())
    if names.types == {""} or not names.has_prefixes:
        labels = _ordered({*names.tags.values()}, model_init, named)
        return TagSet(labels, TagNames.from_labels(labels).scheme)
    learned = cast(Scheme, scheme)
    if named:
        locations = {
            tag: sentence.location
            for sentence in train
            for tag in names.convert(sentence.label or (), learned)
        }
        return TagSet(_ordered(locations, model_init, named), learned)
    prefixes = "BI" if scheme == "iob2" else "BIES"
    required = {OUTSIDE, *names.whole}
    for entity_type in names.types - names.whole:
        suffix = f"-{entity_type}" if entity_type else ""
        required |= {prefix + suffix for prefix in prefixes}
    return TagSet(_ordered(required, model_init, named), learned)


def _finished_tag_set(description: ModelDescription, named: tuple[str, ...]) -> TagSet:
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
    return TagSet(labels, TagNames.from_labels(labels).scheme)


def _ordered(
    tags: Collection[str], model_init: ModelInit, named: tuple[str, ...]
) -> tuple[str, ...]:
    """The labels of these tags: named ones, the initial model's, or the tags, O first.

    Labels may be written in any way that `TagNames` reads. A mapping has the location of each tag.
    """
    if named:
        choose_labels(tags, model_init, TagSet(named, None).tags)
        return named
    known = model_init.description.labels if model_init.description else ()
    if {*TagSet(known, None).tags} == {*tags}:
        return known
    labels = choose_labels(tags, model_init)
    return tuple(sorted(labels, key=lambda label: label != OUTSIDE))


def read_tags(
    source: str, sentences: Iterable[Example[Sentence]], others: Iterable[str] = ()
) -> list[Example[Sentence]]:
    """The sentences of a file, with tags as `TagNames` writes them; a line says what was read.

    Sentences of a file in columns get these tags as one more column, where they differ.

    Args:
        source: the file.
        sentences: its sentences.
        others: labels of other files and of the model: a small file may not show what its own are.
    """
    sentences = list(sentences)
    own = dict.fromkeys(tag for sentence in sentences for tag in sentence.label or ())
    names = TagNames.from_labels([*own, *others]).within(own)
    changed = any(label != tag for label, tag in names.tags.items())

    def read(sentence: Example[Sentence]) -> Example[Sentence]:
        if sentence.label is None or not changed:
            return sentence
        tags = tuple(names.tags[label] for label in sentence.label)
        return dataclasses.replace(
            sentence, input=with_added_column(sentence.input, tags), label=tags
        )

    tagged = [*map(read, sentences)]
    if names.marks_entities and is_main_host():
        scheme = detect_scheme(names.prefixed(sentence.label or ()) for sentence in tagged)
        say(f"{source}: {names.as_text(scheme if names.has_prefixes else None)}")
    return tagged


def with_tags(
    splits: Splits[Sentence],
    files: Iterable[tuple[str, list[Example[Sentence]]]],
    known: Iterable[str],
) -> Splits[Sentence]:
    """The sentences with tags that are read together, see `read_tags`; `known`: further labels."""
    labels = dict.fromkeys(known)
    for _, sentences in files:
        labels |= dict.fromkeys(tag for sentence in sentences for tag in sentence.label or ())
    tagged: dict[int, Example[Sentence]] = {}
    for source, sentences in files:
        tagged |= zip(map(id, sentences), read_tags(source, sentences, labels), strict=True)

    def read(sentences: Iterable[Example[Sentence]]) -> list[Example[Sentence]]:
        return [tagged[id(sentence)] for sentence in sentences]

    def read_sets(sets: Iterable[EvalSet[Sentence]]) -> list[EvalSet[Sentence]]:
        return [dataclasses.replace(each, examples=read(each.examples)) for each in sets]

    return dataclasses.replace(
        splits,
        all_train=read(splits.all_train),
        train=read(splits.train),
        validation=read_sets(splits.validation),
        test=read_sets(splits.test),
    )


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
    prefix may stand anywhere.
    """
    names = TagNames.from_labels(labels)
    if not names.has_prefixes:
        return crf_params
    tags = [names.split(names.tags[label]) for label in labels]
    closed = any(prefix in ("E", "S") for prefix, _ in tags)

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
