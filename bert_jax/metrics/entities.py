"""Entities in sequences of tags, and their precision, recall and F1 as in conlleval.

The rules of the CoNLL-2000 to 2003 shared tasks (Tjong Kim Sang and Buchholz 2000; Tjong
Kim Sang and Veenstra 1999 for the schemes): lenient, every sequence of tags has one reading. The
script itself has no rule for tags of BIOES. The rule of this module: S is a single entity
(the script does not know it), and B also begins one after E of the same type (the script joins).
"""

import dataclasses
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, get_args

from bert_jax.errors import UserError

Scheme = Literal["iob1", "iob2", "bioes"]
"""How tags write entities. Where one begins, IOB1 has B- only after another of the same type,
IOB2 always; BIOES also marks its last token (E-) and an entity of a single token (S-)."""

OUTSIDE = "O"
"""The tag of tokens outside of all entities."""

# Other names of the prefixes: BMES, BMEWO, BILOU.
_OTHER_NAMES = {"M": "I", "L": "E", "U": "S", "W": "S"}
_PREFIXES = frozenset("BIOES")


class Span(NamedTuple):
    """An entity.

    Attributes:
        start: first token.
        end: one past the last token.
        type: type, "" if the tags have none.
    """

    start: int
    end: int
    type: str


def spans(tags: Sequence[str]) -> list[Span]:
    """The entities of one sentence, from left to right.

    An entity begins at B and S, where the type differs from the token before, and after O, E and S;
    any other I or E continues the entity before it.

    Args:
        tags: O, or a prefix, a hyphen and a type, which may contain hyphens; only a
            prefix has the type "". Prefixes of BMES, BMEWO and BILOU are also accepted.

    Raises:
        UserError: a tag is none of these.
    """
    entities = []
    before, type_before, start = "O", "", 0
    for position, tag in enumerate(tags):
        prefix, entity_type = _parse(tag)
        if prefix == "O" or _begins(prefix, entity_type, before, type_before):
            if before != "O":
                entities.append(Span(start, position, type_before))
            start = position
        before, type_before = prefix, entity_type
    if before != "O":
        entities.append(Span(start, len(tags), type_before))
    return entities


def tags_of(entities: Iterable[Span], length: int, scheme: Scheme) -> list[str]:
    """The tags of a sentence of `length` tokens with these entities, from left to right."""
    tags = ["O"] * length
    end, type_before = -1, ""
    for entity in entities:
        inside = range(entity.start + 1, entity.end)
        prefixes = ["B", *("I" for _ in inside)]
        if scheme == "iob1" and not (entity.start == end and entity.type == type_before):
            prefixes[0] = "I"
        elif scheme == "bioes":
            prefixes[-1] = "E" if inside else "S"
        suffix = f"-{entity.type}" if entity.type else ""
        tags[entity.start : entity.end] = [prefix + suffix for prefix in prefixes]
        end, type_before = entity.end, entity.type
    return tags


def convert(tags: Sequence[str], scheme: Scheme) -> list[str]:
    """The tags of the same entities in another scheme; malformed tags are read as in `spans`.

    Raises:
        UserError: a tag or the scheme is unknown.
    """
    if scheme not in get_args(Scheme):
        raise UserError(
            f"tagging scheme {scheme!r} is unknown; known are {', '.join(get_args(Scheme))}"
        )
    return tags_of(spans(tags), len(tags), scheme)


def detect_scheme(sentences: Iterable[Sequence[str]]) -> Scheme | None:
    """The scheme of a file.

    If some entities begin as in IOB1 and others as in IOB2, the majority decides.

    Args:
        sentences: tags of each sentence.

    Returns:
        The scheme; None if a tag belongs to no scheme, such as parts of speech.
    """
    # First tags of entities where the schemes differ: not after another one of the same type.
    begins: Counter[str] = Counter()
    closed = False
    for tags in sentences:
        before, type_before = "O", ""
        for tag in tags:
            parsed = split_tag(tag)
            if parsed is None:
                return None
            prefix, entity_type = parsed
            closed = closed or prefix in "ES"
            if before == "O" or entity_type != type_before:
                begins[prefix] += 1
            before, type_before = prefix, entity_type
    if closed:
        return "bioes"
    return "iob1" if begins["I"] > begins["B"] else "iob2"


def _begins(prefix: str, entity_type: str, before: str, type_before: str) -> bool:
    """Whether an entity begins at a token that is not outside."""
    return prefix in "BS" or before in "OES" or entity_type != type_before


def split_tag(tag: str) -> tuple[str, str] | None:
    """The prefix, one of BIOES, and the type; None if the tag belongs to no scheme."""
    prefix, _, entity_type = tag.partition("-")
    prefix = _OTHER_NAMES.get(prefix, prefix)
    return (prefix, entity_type) if prefix in _PREFIXES else None


def _parse(tag: str) -> tuple[str, str]:
    parsed = split_tag(tag)
    if parsed is None:
        raise UserError(
            f"{tag!r} is not the tag of an entity; known are O, and B, I, E, S (or M, L, U, W) "
            "with a hyphen and a type, as in B-PER"
        )
    return parsed


class Scores(NamedTuple):
    """Fractions from 0 to 1; 0 if there are no predicted or no gold entities."""

    precision: float
    recall: float
    f1: float


@dataclasses.dataclass(frozen=True)
class EntityCounts:
    """Numbers of gold, predicted and correct entities.

    Attributes:
        gold: number of gold entities by type.
        predicted: number of predicted entities by type.
        correct: by type, predicted entities with first token, last token and type of a gold one.
        tokens: number of tokens.
        correct_tokens: number of tokens with exactly the gold tag.
    """

    gold: Mapping[str, int]
    predicted: Mapping[str, int]
    correct: Mapping[str, int]
    tokens: int
    correct_tokens: int

    @classmethod
    def from_tags(
        cls, gold: Iterable[Sequence[str]], predicted: Iterable[Sequence[str]]
    ) -> "EntityCounts":
        """Counts sentences.

        Args:
            gold: tags of each sentence, in any scheme.
            predicted: predicted tags, of the same number and lengths; the scheme may differ.

        Raises:
            UserError: a tag is not the tag of an entity.
            ValueError: the numbers of sentences or of tags differ.
        """
        in_gold: Counter[str] = Counter()
        in_predicted: Counter[str] = Counter()
        in_both: Counter[str] = Counter()
        tokens = correct_tokens = 0
        for truth, guess in zip(gold, predicted, strict=True):
            tokens += len(truth)
            correct_tokens += sum(a == b for a, b in zip(truth, guess, strict=True))
            true_spans, predicted_spans = spans(truth), spans(guess)
            in_gold.update(entity.type for entity in true_spans)
            in_predicted.update(entity.type for entity in predicted_spans)
            in_both.update(entity.type for entity in set(true_spans).intersection(predicted_spans))
        return cls(in_gold, in_predicted, in_both, tokens, correct_tokens)

    @property
    def types(self) -> tuple[str, ...]:
        """All types of gold or predicted entities, sorted."""
        return tuple(sorted({*self.gold, *self.predicted}))

    @property
    def accuracy(self) -> float:
        """The fraction of tokens with the correct tag; 0 if there are none."""
        return self.correct_tokens / self.tokens if self.tokens else 0.0

    @property
    def overall(self) -> Scores:
        """Scores of the entities of all types together."""
        return self.scores(self.types)

    def as_text(self) -> str:
        """The lines of conlleval, in percent; the last number counts predicted entities."""
        gold, predicted, correct = (
            sum(count.values()) for count in (self.gold, self.predicted, self.correct)
        )
        lines = [
            f"processed {self.tokens} tokens with {gold} phrases; found: {predicted} phrases; "
            f"correct: {correct}."
        ]
        if self.tokens:
            accuracy = 100 * self.correct_tokens / self.tokens
            lines.append(f"accuracy: {accuracy:6.2f}%; {_line(self.scores(self.types, 100))}")
        for name in self.types:
            line = _line(self.scores((name,), 100))
            lines.append(f"{name:>17}: {line}  {self.predicted.get(name, 0)}")
        return "\n".join(lines)

    def scores(self, types: Collection[str], scale: int = 1) -> Scores:
        """Scores of several types together, times `scale`, computed in the script's order."""
        gold, predicted, correct = (
            sum(count.get(name, 0) for name in types)
            for count in (self.gold, self.predicted, self.correct)
        )
        precision = scale * correct / predicted if predicted else 0.0
        recall = scale * correct / gold if gold else 0.0
        total = precision + recall
        return Scores(precision, recall, 2 * precision * recall / total if total else 0.0)


def _line(scores: Scores) -> str:
    precision, recall, f1 = scores
    return f"precision: {precision:6.2f}%; recall: {recall:6.2f}%; FB1: {f1:6.2f}"
