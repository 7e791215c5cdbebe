"""How labels write tags: one reading for data, training, evaluation, CRF and predictions.

    B-PER, B_PER, B:PER, b-per; PER-B, PER_B     a prefix of a scheme, and a type
    O, o, 0, OUTSIDE, None                       outside of all entities
    MISC, X, [PAD], <unk>                        beside these: a type of its own, without a prefix

Whether a letter is a prefix depends on all labels: `E-MAIL` beside `PHONE` or `B-PER` is none, as
no entity ends that does not begin.
"""

import dataclasses
import functools
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from bert_jax.errors import counted, listed
from bert_jax.metrics.entities import OUTSIDE, Scheme, convert, split_tag

# In upper case, in the order of precedence: beside O, the others are types.
_OUTSIDE = (OUTSIDE, "0", "OUTSIDE", "NONE")

_BEFORE = re.compile(r"(?P<prefix>[a-z])(?:[-_:.](?P<type>.*))?", re.IGNORECASE | re.DOTALL)
_AFTER = re.compile(r"(?P<type>.+)[-_:.](?P<prefix>[a-z])", re.IGNORECASE | re.DOTALL)

_WRITTEN = {"iob1": "IOB1", "iob2": "BIO", "bioes": "BIOES"}


@dataclasses.dataclass(frozen=True)
class TagNames:
    """The tags that some labels stand for.

    A tag is O, or a prefix of BIOES, a hyphen and a type, as `metrics.entities` reads it. A label
    without a prefix is a tag of the same name.

    Attributes:
        tags: the tag of each label.
        has_prefixes: whether tags other than O may have prefixes; otherwise none has one.
        without_prefix: tags that have none although they look like it, such as `E-MAIL`.
    """

    tags: Mapping[str, str]
    has_prefixes: bool
    without_prefix: frozenset[str] = frozenset()

    @classmethod
    def from_labels(cls, labels: Iterable[str]) -> "TagNames":
        """Reads the labels of a model or of a file."""
        labels = dict.fromkeys(labels)
        outside = [label for label in labels if label.upper() in _OUTSIDE]
        outside.sort(key=lambda label: (_OUTSIDE.index(label.upper()), label))
        tags = {label: label for label in labels} | dict.fromkeys(outside[:1], OUTSIDE)
        others = [label for label in labels if tags[label] != OUTSIDE]
        for form in (_BEFORE, _AFTER):
            if prefixed := _prefixed(others, form):
                return cls(tags | prefixed, True, frozenset({*others} - prefixed.keys()))
        return cls(tags, False)

    def within(self, labels: Iterable[str]) -> "TagNames":
        """How some of the labels, those of a file, are read: as all labels together.

        A file that is written otherwise than most, such as `PER-B` beside files with `B-PER`, is
        read alone: so more of its labels have a prefix, or are O.
        """
        alone = TagNames.from_labels(labels)
        joint = dataclasses.replace(self, tags={label: self.tags[label] for label in alone.tags})
        is_better = alone._with_meaning > joint._with_meaning
        return alone if is_better and alone.has_prefixes == joint.has_prefixes else joint

    @property
    def _with_meaning(self) -> int:
        """The number of labels that are O or have a prefix."""
        return sum(bool(self.split(tag)[0]) for tag in self.tags.values())

    @property
    def marks_entities(self) -> bool:
        """Whether the tags mark entities; otherwise they are such as parts of speech."""
        return self.has_prefixes or OUTSIDE in self.tags.values()

    @property
    def is_plain(self) -> bool:
        """Whether labels are the tags that they stand for, and all or none have prefixes."""
        are_tags = all(label == tag for label, tag in self.tags.items())
        return are_tags and not (self.has_prefixes and self.whole)

    @functools.cached_property
    def whole(self) -> set[str]:
        """The types that have no prefix: neighbours with such a tag are one entity."""
        parts = [(tag, self.split(tag)) for tag in self.tags.values()]
        with_prefix = {entity_type for _, (prefix, entity_type) in parts if prefix}
        return {tag for tag, (prefix, _) in parts if not prefix} - with_prefix

    @functools.cached_property
    def types(self) -> set[str]:
        """The types of entities."""
        split = map(self.split, self.tags.values())
        return {entity_type for prefix, entity_type in split if prefix != OUTSIDE}

    @property
    def scheme(self) -> Scheme | None:
        """The scheme of a model with these labels; None where they have no prefixes."""
        if not self.has_prefixes:
            return None
        parts = [*map(self.split, self.tags.values())]
        if any(prefix in ("E", "S") for prefix, _ in parts):
            return "bioes"
        beginning = {entity_type for prefix, entity_type in parts if prefix == "B"}
        return "iob2" if beginning == self.types - self.whole else "iob1"

    def split(self, tag: str) -> tuple[str, str]:
        """The prefix of a tag, "" without one, and its type."""
        if tag == OUTSIDE:
            return OUTSIDE, ""
        may_have = self.has_prefixes and tag not in self.without_prefix
        return (split_tag(tag) if may_have else None) or ("", tag)

    def entity_tags(self, tags: Iterable[str]) -> list[str]:
        """Tags as `metrics.entities` takes them, also those without a prefix."""
        return [tag if self.split(tag)[0] else f"I-{tag}" for tag in tags]

    def convert(self, tags: Sequence[str], scheme: Scheme) -> list[str]:
        """The tags of the same entities in another scheme; types of `whole` have no prefix."""
        converted = convert(self.entity_tags(tags), scheme)
        return [
            entity_type if (entity_type := self.split(tag)[1]) in self.whole else tag
            for tag in converted
        ]

    def fit(self, tags: Iterable[str]) -> bool:
        """Whether the types of tags have prefixes where the labels have them."""
        parts = map(self.split, tags)
        return all((prefix == "") == (entity_type in self.whole) for prefix, entity_type in parts)

    def prefixed(self, tags: Iterable[str]) -> list[str]:
        """Tags with O for those without a prefix: what shows the scheme."""
        return [tag if self.split(tag)[0] else OUTSIDE for tag in tags]

    def as_text(self, scheme: Scheme | None) -> str:
        """What was understood: "scheme BIO, 3 types; O is '0'"; `scheme`: see `Scheme`."""
        read = f"scheme {_WRITTEN[scheme]}" if scheme else "no prefixes"
        parts = [f"{read}, {counted(len(self.types), 'types')}"]
        changed = {tag: label for label, tag in self.tags.items() if label != tag}
        shown = [OUTSIDE, min(changed.keys() - {OUTSIDE}, default=OUTSIDE)]
        parts += [f"{tag} is {changed[tag]!r}" for tag in dict.fromkeys(shown) if tag in changed]
        if self.has_prefixes and self.whole:
            parts.append(f"without a prefix: {listed(sorted(self.whole))}")
        return "; ".join(parts)


def _prefixed(labels: Sequence[str], form: re.Pattern[str]) -> dict[str, str]:
    """The tags of the labels with a prefix in this form; {} if no letter is a prefix.

    It is one where a type has both B and I; before a type also in `B-` or `I-` as such, and where
    all labels have prefixes. Labels of other letters in this form, such as `A_x` beside `B_x`,
    speak against it. E is none of a type that has neither B nor I, if others have; nor is S, if
    no type has E or S beside B or I.
    """
    tags: dict[str, str] = {}
    prefixes: defaultdict[str, set[str]] = defaultdict(set)  # by type
    has_others = False
    for label in labels:
        if not (found := form.fullmatch(label)):
            continue
        typed = "" if found["type"] is None else f"-{found['type']}"
        if read := split_tag(found["prefix"].upper() + typed):
            tags[label] = OUTSIDE if read[0] == OUTSIDE else "-".join(filter(None, read))
            prefixes[read[1]].add(read[0])
        else:
            has_others |= bool(typed)
    has_pair = any({"B", "I"} <= prefixes[entity_type] for entity_type in prefixes if entity_type)
    is_prefix = has_pair and not has_others
    if form is _BEFORE:
        every = set().union(*prefixes.values()) if len(tags) == len(labels) else set()
        is_plain = all(map(split_tag, labels))
        is_prefix |= any(label.startswith(("B-", "I-")) for label in tags)
        is_prefix |= "B" in every or (is_plain and bool(every & {"I", "S"}))
    if not is_prefix:
        return {}
    inside = {entity_type for entity_type, found in prefixes.items() if found & {"B", "I"}}
    closed = any(prefixes[entity_type] & {"E", "S"} for entity_type in inside)
    alone = {"E"} if closed else {"E", "S"} if inside else set()

    def has_prefix(tag: str) -> bool:
        prefix, entity_type = split_tag(tag) or ("", "")
        return prefix not in alone or entity_type in inside

    return {label: tag for label, tag in tags.items() if has_prefix(tag)}
