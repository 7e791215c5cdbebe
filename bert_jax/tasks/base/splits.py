"""The labelled files of a task: what is trained on, what is validation, what is to be predicted."""

import dataclasses
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
from ml_collections import ConfigDict

from bert_jax.data.randomness import derive_key, permute
from bert_jax.errors import UserError
from bert_jax.files import as_path, is_remote, reachable

Example = TypeVar("Example")

# Which examples are validation, or drawn, is the same for all seeds of a run: their scores are
# compared with each other.
_SEED = 2018


@dataclasses.dataclass(frozen=True)
class EvalSet(Generic[Example]):
    """The examples of one file.

    Attributes:
        name: of the part, as it stands in metrics and names of files.
        source: where they are from.
        examples: in the order of the file.
    """

    name: str
    source: str
    examples: list[Example]


@dataclasses.dataclass(frozen=True)
class Splits(Generic[Example]):
    """All labelled data of a task.

    Attributes:
        given: all examples of the training file, those that are validation or not drawn among them:
            what labels there are. Empty if a finished model is judged.
        train: what is trained on; likewise.
        validation: what the model is judged by; parts of several files have their metrics apart.
        test: what is predicted in the end.
    """

    given: list[Example]
    train: list[Example]
    validation: list[EvalSet[Example]]
    test: list[EvalSet[Example]]


def read_splits(
    data: ConfigDict,
    read: Callable[[str, str], Iterable[Example]],
    *,
    with_train: bool,
    default_names: dict[str, tuple[str, ...]] | None = None,
) -> Splits[Example]:
    """Reads the files that section `data` of a config names.

    Args:
        data: the section. `train`, `validation` and `test` are files, below `directory` if it is
            given, or "tfds:…"; `validation` and `test` may be several. Without a validation file,
            the share `validation` of the training examples is taken for it. Of the rest, `limit`
            drawn at random are trained on; 0: all.
        read: the examples of a source, and of which split ("train", "validation", "test") it is.
        with_train: whether there is to be something to train on.
        default_names: names of files below `directory` of which those that exist are used, by
            split, where the config names none.

    Raises:
        UserError: a file is missing or has no examples, nothing is given, or `limit` is below 0.
    """
    if data.limit < 0:
        raise UserError(f"data.limit is {data.limit}; it must be 0 (all examples) or more")

    def sources(split: str) -> list[str]:
        return _sources(data, split, (default_names or {}).get(split, ()))

    given: list[Example] = []
    train: list[Example] = []
    validation = _parts(sources("validation"), "validation", read)
    if with_train or not validation:
        to_train = sources("train")
        if not to_train:
            raise UserError("data.train is not set; give a file of examples to train on")
        given = [example for source in to_train for example in read(source, "train")]
        if not given:
            raise UserError(f"{', '.join(to_train)}: no examples; give another data.train")
        order = permute(np.arange(len(given)), len(given), derive_key(_SEED))
        if not validation:
            count = _validation(data.validation_fraction, len(given))
            chosen = np.sort(order[:count])
            part = EvalSet("validation", to_train[0], [given[place] for place in chosen])
            validation, order = [part], order[count:]
        kept = np.sort(order[: data.limit] if data.limit else order)
        train = [given[place] for place in kept]
    test = _parts(sources("test"), "test", read)
    names = [part.name for part in (*validation, *test)]
    if len(set(names)) < len(names):
        raise UserError(f"the files {', '.join(names)} have a name in common; rename one")
    return (
        Splits(given, train, validation, test) if with_train else Splits([], [], validation, test)
    )


def _sources(data: ConfigDict, split: str, default_names: tuple[str, ...]) -> list[str]:
    given = data[split]
    names = [given] if isinstance(given, str) else list(given)
    directory = as_path(data.directory) if data.directory else None
    found = []
    for name in filter(None, names):
        if name.startswith("tfds:"):
            found.append(name)
            continue
        path = directory / name if directory and not is_remote(name) else as_path(name)
        if not _is_file(path):
            raise UserError(f"data.{split}: {path} does not exist; give another file")
        found.append(str(path))
    if not found and directory:
        paths = [directory / name for name in default_names]
        found = [str(path) for path in paths if _is_file(path)]
        if not found and split == "train" and default_names:
            raise UserError(
                f"data.directory {directory} has no {default_names[0]}; name the file with "
                f"data.{split}"
            )
    return found


def _is_file(path: Path) -> bool:
    with reachable(path):
        return path.is_file()


def _parts(
    sources: list[str], split: str, read: Callable[[str, str], Iterable[Example]]
) -> list[EvalSet[Example]]:
    names = [Path(source).name.split(".")[0] if len(sources) > 1 else split for source in sources]
    parts = [
        EvalSet(name, source, list(read(source, split)))
        for name, source in zip(names, sources, strict=True)
    ]
    for part in parts:
        if not part.examples:
            raise UserError(f"{part.source}: no examples; give another data.{split}")
    return parts


def _validation(share: float, count: int) -> int:
    if not 0 < share < 1:
        raise UserError(
            f"data.validation_fraction is {share}; without a data.validation file it must lie between 0 and 1"
        )
    found = round(share * count)
    if not 0 < found < count:
        raise UserError(
            f"data.validation_fraction {share} of {count} examples is {found}; give more examples, or a "
            "data.validation file"
        )
    return found
