"""The labels of a tagger: which tags there are, and in which scheme they are learned."""

import dataclasses
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import cast

import numpy as np

from bert_jax.data.examples import TaggedSentence
from bert_jax.data.readers.conll import OUTSIDE
from bert_jax.errors import UserError
from bert_jax.metrics.entities import Scheme, convert, detect_scheme, spans
from bert_jax.tasks.base.splits import EvalSet, choose_labels
from bert_jax.tasks.base.task import ModelInit

SCHEMES = ("iob2", "bioes")
"""Those that are learned. In IOB1 a tag does not say whether an entity begins."""


@dataclasses.dataclass(frozen=True)
class TagSet:
    """The tags of a model.

    Attributes:
        labels: their names, in the order of their numbers.
        scheme: how they write entities; None: they are no names of entities, as parts of speech.
    """

    labels: tuple[str, ...]
    scheme: Scheme | None

    def translate(self, tags: Sequence[str]) -> list[str]:
        """Tags of any scheme in that of the model."""
        return list(tags) if self.scheme is None else convert(tags, self.scheme)

    def numbers(self, tags: Sequence[str]) -> np.ndarray:
        """The numbers of tags of any scheme, int32 [W]; they are known, see `check`."""
        number = {label: number for number, label in enumerate(self.labels)}
        return np.array([number[tag] for tag in self.translate(tags)], np.int32)

    def comparable(
        self, examples: Sequence[TaggedSentence], tags: Sequence[Sequence[str]]
    ) -> tuple[list[Sequence[str]], list[Sequence[str]]]:
        """Gold tags and predicted ones in one scheme, that of the gold tags.

        So whoever compares the columns of our files letter by letter, as conlleval does for its
        accuracy, finds what we say. (It also counts lines of -DOCSTART- as words, and does not know
        M, L, U and W: these are read as BIOES.)

        Args:
            examples: sentences with tags.
            tags: the model's, of each.
        """
        gold: list[Sequence[str]] = [example.tags or () for example in examples]
        scheme = detect_scheme(gold) if self.scheme else None
        if scheme is None:
            return gold, list(tags)
        if any(tag[0] not in "BIOES" for of_one in gold for tag in of_one):
            gold = [convert(of_one, scheme) for of_one in gold]
        return gold, [convert(of_one, scheme) for of_one in tags]

    def knows(self, tag: str) -> bool:
        """Whether a tag of any scheme means something to the model."""
        if self.scheme is None:
            return tag in self.labels
        if detect_scheme([[tag]]) is None:
            return False
        return _types([tag]) <= _types(self.labels)

    def check(self, sentences: Iterable[TaggedSentence]) -> None:
        """Refuses tags that the model does not know.

        Raises:
            UserError: there is one; names file and line of its sentence.
        """
        for sentence, word, tag in _strange(sentences, self.knows):
            what = "types of entities" if self.scheme else "tags"
            known = sorted(_types(self.labels)) if self.scheme else self.labels
            raise UserError(
                f"{sentence.place}: the tag {tag!r} of {word!r} is none that the model has; it has "
                f"the {what} {', '.join(known)}: mend the data, train with examples of it, or name "
                "all tags in data.labels"
            )

    def drop_unknown_tags(self, part: EvalSet[TaggedSentence]) -> EvalSet[TaggedSentence]:
        """Test sentences as they are, or untagged if their tags mean nothing to the model.

        The last column of a file without tags is some other column.
        """
        strange = next(iter(_strange(part.examples, self.knows)), None)
        if strange is None:
            return part
        print(
            f"{part.source}: tags such as {strange[2]!r} are none of the model's: the file is "
            "predicted, not judged",
            file=sys.stderr,
        )
        untagged = [dataclasses.replace(example, tags=None) for example in part.examples]
        return dataclasses.replace(part, examples=untagged)


def find_tag_set(
    train: Sequence[TaggedSentence],
    model_init: ModelInit,
    scheme: str,
    given: tuple[str, ...],
) -> TagSet:
    """The tags to learn: O first, then the others in the order of the alphabet.

    Every type of entity that is there gets all tags of the scheme, also those that no training
    sentence has: I-PER, if no name had two words.

    Args:
        train: tagged sentences; none if a finished model is judged.
        model_init: of the model.
        scheme: one of `SCHEMES`, for tags that are names of entities.
        given: the tags in their order, if the config names them; of a finished model only where it
            does not name its own (LABEL_0, LABEL_1, … are no names).

    Raises:
        UserError: a tag is that of no entity where others are, or the model, the config and the
            data have different ones.
    """
    if scheme not in SCHEMES:
        raise UserError(f"data.scheme {scheme!r} is unknown; known are {', '.join(SCHEMES)}")
    if model_init.is_finished and model_init.description:
        labels = model_init.description.labels
        outputs = model_init.description.config.num_labels
        if all(name == f"LABEL_{number}" for number, name in enumerate(labels)) and given:
            if len(given) != outputs:
                raise UserError(f"data.labels names {len(given)} tags, but the model has {outputs}")
            labels = given
        if not labels:
            raise UserError(
                "the model does not name its tags (id2label in config.json); name them in their "
                f"order with data.labels: {outputs}"
            )
        return TagSet(labels, scheme_of(labels))
    tags = {tag for sentence in train for tag in sentence.tags or ()}
    if not any("-" in tag and detect_scheme([[tag]]) for tag in tags):
        return TagSet(_ordered(tags, model_init, given), None)
    for sentence, word, tag in _strange(train, lambda tag: detect_scheme([[tag]]) is not None):
        raise UserError(
            f"{sentence.place}: {tag!r}, the tag of {word!r}, is not that of an entity, as others "
            "are: O, or B-, I-, E-, S- and a type; mend it"
        )
    prefixes = "BI" if scheme == "iob2" else "BIES"
    wanted = {OUTSIDE}
    for entity_type in _types(tags):
        suffix = f"-{entity_type}" if entity_type else ""
        wanted |= {prefix + suffix for prefix in prefixes}
    return TagSet(_ordered(wanted, model_init, given), cast(Scheme, scheme))


def scheme_of(labels: Sequence[str]) -> Scheme | None:
    """The scheme of a model's labels; None where they are no names of entities."""
    if detect_scheme([labels]) is None:
        return None
    if any(label[0] in "ES" for label in labels):
        return "bioes"
    beginning = _types(label for label in labels if label.startswith("B"))
    return "iob2" if beginning == _types(labels) else "iob1"


def _ordered(tags: set[str], model_init: ModelInit, given: tuple[str, ...]) -> tuple[str, ...]:
    """As `choose_labels`; where the order is open, O is first."""
    labels = choose_labels(tags, model_init, given)
    known = model_init.description.labels if model_init.description else ()
    if OUTSIDE not in labels or given or labels == known:
        return labels
    return (OUTSIDE, *(label for label in labels if label != OUTSIDE))


def _types(tags: Iterable[str]) -> set[str]:
    return {entity.type for tag in tags for entity in spans([tag])}


def _strange(
    sentences: Iterable[TaggedSentence], is_known: Callable[[str], bool]
) -> Iterable[tuple[TaggedSentence, str, str]]:
    """Sentences with a word and its tag that is not known."""
    known: dict[str, bool] = {}
    for sentence in sentences:
        for word, tag in zip(sentence.words, sentence.tags or (), strict=False):
            if tag not in known:
                known[tag] = is_known(tag)
            if not known[tag]:
                yield sentence, word, tag
