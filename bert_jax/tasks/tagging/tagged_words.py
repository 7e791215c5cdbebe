"""Words with their tags, and the entities that these mark."""

import dataclasses
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True, slots=True)
class TaggedWord:
    """A word and its tag.

    Attributes:
        text: the word.
        tag: label of the word.
        score: probability of the label; 0 if the word has no tokens, which puts it outside of all
            entities.
        start: first character of the word in the text, or in the words joined by spaces.
        end: one past the last character.
    """

    text: str
    tag: str
    score: float
    start: int
    end: int


@dataclasses.dataclass(frozen=True, slots=True)
class Entity:
    """Consecutive words that form one entity, such as a name.

    Attributes:
        type: type of the entity, such as "PER".
        text: substring of the text.
        score: mean of the scores of the words.
        start: first character, as in `TaggedWord`.
        end: one past the last character.
        words: index of the first word, and one past the last word.
    """

    type: str
    text: str
    score: float
    start: int
    end: int
    words: tuple[int, int]


@dataclasses.dataclass(frozen=True, slots=True)
class Tagging:
    """The tags of a sentence.

    Attributes:
        words: all words of the sentence.
        entities: entities that the tags mark, in order; empty if tags mark none, such as parts of
            speech.
    """

    words: tuple[TaggedWord, ...]
    entities: tuple[Entity, ...]

    @property
    def tags(self) -> tuple[str, ...]:
        """The tag of each word."""
        return tuple(word.tag for word in self.words)

    def with_tags(self, tags: Sequence[str]) -> "Tagging":
        """The same entities in another scheme: with this tag of each word."""
        pairs = zip(self.words, tags, strict=True)
        words = tuple(dataclasses.replace(word, tag=tag) for word, tag in pairs)
        return dataclasses.replace(self, words=words)
