"""Entities as characters of a text, in the objects that annotation tools write.

    {"text": "…", "label": [[0, 4, "PER"]]}                             doccano
    {"text": "…", "entities": [{"start_offset": 0, "end_offset": 4, "label": "PER"}]}    the same
    ["…", {"entities": [[0, 4, "PER"]]}]                                spaCy
    {"text": "…", "ents": [{"start": 0, "end": 4, "label": "PER"}]}     spaCy's `Doc.to_json`
    {"text": "…", "spans": [{"start": 0, "end": 4, "label": "PER"}]}    Prodigy
    {"data": {"text": "…"},                                             Label Studio
     "annotations": [{"result": [{"value": {"start": 0, "end": 4, "labels": ["PER"]}}]}]}

Ends are one past the last character. Words are those of `split_words`; blanks at the ends of an
entity do not count.
"""

import bisect
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bert_jax.data.examples import Sentence
from bert_jax.data.readers.columns import USUAL_WORDS, no_usual_name, usual_column
from bert_jax.data.readers.tables import Record
from bert_jax.data.windows.words import Word, split_words
from bert_jax.errors import OptionError, UserError
from bert_jax.metrics.entities import OUTSIDE

CUT_WORDS = ERROR, WIDEN = "error", "widen"

_TEXTS = ("text", "content", "sentence", "data")
_ENTITIES = ("entities", "ents", "spans", "label", "labels")
_STARTS, _ENDS = ("start", "start_offset"), ("end", "end_offset")
_TYPES = ("label", "labels", "type")


class Offsets(NamedTuple):
    """A text with entities.

    Attributes:
        record: the record, with all below in its fields.
        text: key of the text.
        entities: key of the entities; "": there are none.
    """

    record: Record
    text: str
    entities: str

    @property
    def content(self) -> str:
        """The text itself."""
        return str(self.record.fields[self.text])

    def tagged(self, cut_words: str) -> tuple[Sentence, tuple[str, ...] | None]:
        """The words of the text, and their tags in IOB2; None if it has no list of entities.

        Args:
            cut_words: "error", or "widen" for entities with the whole of a word that they cut.

        Raises:
            UserError: an entity is malformed, cuts a word, or has a word of another one.
        """
        text, location = self.content, self.record.location
        words = split_words(text)
        spans = tuple((word.start, word.end) for word in words)
        sentence = Sentence(tuple(word.text for word in words), text=text, spans=spans)
        if not self.entities:
            return sentence, None
        tags = [OUTSIDE] * len(words)
        found = (_entity(item, text, location) for item in self.record.fields[self.entities])
        for entity in dict.fromkeys(found):
            inside = _words_of(entity, words, cut_words, location)
            if any(tags[number] != OUTSIDE for number in inside):
                raise UserError(
                    f"{location}: {entity} has a word of another entity, but a word has one tag; "
                    "remove one of them"
                )
            for number in inside:
                tags[number] = f"{'I' if number > inside[0] else 'B'}-{entity.type}"
        return sentence, tuple(tags)


def find_offsets(record: Record, text_column: str, entities_column: str) -> Offsets | None:
    """Where an object has a text with entities, or a text of such a tool; None: it has neither.

    Args:
        record: a record.
        text_column: the configured key of the text; "": a usual one.
        entities_column: the configured key of the entities; "": a usual one.

    Raises:
        UserError: there are several annotations that differ.
    """
    if record.columns is not None:
        return None
    original, record = record, _label_studio_task(record, text_column)
    fields = record.fields
    strings = [key for key, value in fields.items() if isinstance(value, str)]
    lists = [key for key, value in fields.items() if _are_entities(value)]
    text = text_column if text_column in strings else usual_column(_TEXTS, strings)
    entities = entities_column or usual_column(_ENTITIES, lists)
    if text is None or any(_has_texts(fields.get(key)) for key in USUAL_WORDS):
        return None
    if entities in lists:
        return Offsets(record, text, str(entities))
    has_tokens = isinstance(tokens := fields.get("tokens"), list) and bool(tokens)
    return Offsets(record, text, "") if has_tokens or record is not original else None


def _has_texts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], str)


def _are_entities(value: Any) -> bool:
    def is_entity(item: Any) -> bool:
        if isinstance(item, Mapping):
            return any(key in item for key in _STARTS)
        return isinstance(item, list) and len(item) > 1 and type(item[0]) in (int, float)

    return isinstance(value, list) and all(map(is_entity, value))


@dataclasses.dataclass(frozen=True)
class _Entity:
    start: int
    end: int
    type: str
    text: str

    def __str__(self) -> str:
        return f"the entity {self.text!r:.40} ({self.type}, {self.start} to {self.end})"


def _entity(item: Any, text: str, location: str) -> _Entity:
    """An entity without blanks at its ends."""
    if isinstance(item, Mapping):
        item_keys = (_STARTS, _ENDS, _TYPES)
        values: list[Any] = [
            next((item[key] for key in keys if key in item), None) for keys in item_keys
        ]
    else:
        values = [*item[:3], None][:3]
    start, end, entity_type = values
    if isinstance(entity_type, list) and len(entity_type) == 1:
        entity_type = entity_type[0]
    are_numbers = type(start) is int and type(end) is int and 0 <= start < end <= len(text)
    if not (are_numbers and isinstance(entity_type, str | int) and str(entity_type).strip()):
        raise UserError(
            f"{location}: {item!r:.80} is not an entity: it needs its first character and one past "
            f"its last, of {len(text)}, and one label"
        )
    inside = text[start:end]
    if isinstance(item, Mapping) and item.get("text", inside) != inside:
        raise UserError(
            f"{location}: the characters {start} to {end} are {inside!r:.40}, but the entity has "
            f"the text {item['text']!r:.40}; count characters of Unicode"
        )
    start += len(inside) - len(inside.lstrip())
    return _Entity(start, start + len(inside.strip()), str(entity_type).strip(), inside.strip())


def _words_of(entity: _Entity, words: Sequence[Word], cut_words: str, location: str) -> range:
    """The numbers of the words of an entity."""
    first = bisect.bisect_right(words, entity.start, key=lambda word: word.end)
    end = bisect.bisect_left(words, entity.end, key=lambda word: word.start)
    if first >= end:
        raise UserError(f"{location}: {entity} has no word; remove it")
    begin, last = words[first], words[end - 1]
    cut = [begin.text] * (begin.start != entity.start) + [last.text] * (last.end != entity.end)
    if cut and cut_words == ERROR:
        raise OptionError(
            "data.cut_words",
            cut_words,
            "end it where words end, or set {data.cut_words=widen} to take whole words",
            f"{location}: {entity} cuts the word {cut[0]!r:.40}",
        )
    return range(first, end)


def _label_studio_task(record: Record, text_column: str) -> Record:
    """A task of Label Studio as an object of Prodigy; any other record itself."""
    fields = record.fields
    data, made = fields.get("data"), fields.get("annotations", fields.get("completions"))
    if not (isinstance(data, Mapping) and isinstance(made, list)):
        return record
    others = {key: value for key, value in data.items() if isinstance(value, str)}
    text = text_column if text_column in fields else usual_column(_TEXTS, [*others])
    text = text or (next(iter(others)) if len(others) == 1 else None)
    if text is None:
        names = tuple(f"data.{key}" for key in data)
        rule = "set {data.text_column} to the text, as data.NAME"
        raise no_usual_name("data.text_column", "a text", _TEXTS, names, record.location, rule)
    kept = [one for one in made if isinstance(one, Mapping) and not one.get("was_cancelled")]
    kept = [one for one in kept if one.get("ground_truth")] or kept
    results = [_entities_of(one) for one in kept]
    if any(result != results[0] for result in results):
        raise UserError(
            f"{record.location}: {len(results)} annotations that differ; keep one, or mark one as "
            "ground truth"
        )
    skipped = {"answer": "ignore"} if made and not kept else {}
    spans = {"spans": results[0] if results else []} if made else {}
    id = {"id": fields["id"]} if "id" in fields else {}
    is_named = {text: fields[text]} if text_column in fields else {}
    return Record({**id, **others, **is_named, **spans, **skipped}, record.location)


def _entities_of(annotation: Mapping[str, Any]) -> list[Any]:
    """The entities of an annotation, in their order in the text."""
    result = annotation.get("result")
    values = [item.get("value") for item in result or () if isinstance(item, Mapping)]
    spans = [value for value in values if isinstance(value, Mapping) and "labels" in value]
    return sorted(spans, key=lambda value: (str(value.get("start")), str(value.get("end"))))
