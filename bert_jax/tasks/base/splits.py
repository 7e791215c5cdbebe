"""The labelled files of a task: training, validation and test examples."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np

from bert_jax.data.examples import Example
from bert_jax.data.randomness import derive_key, permute
from bert_jax.data.readers.rows import Report, TableCounts
from bert_jax.errors import OptionError, UserError
from bert_jax.files import as_path, is_remote, reachable
from bert_jax.tasks.base.labelled_options import LabelledData

Input = TypeVar("Input")

# The drawn examples and the validation share are the same for all seeds of a run, so that their
# scores can be compared.
_SEED = 2018


@dataclasses.dataclass(frozen=True)
class EvalSet(Generic[Input]):
    """The examples of one validation or test file.

    Attributes:
        name: the name in metrics and file names.
        source: the file that they were read from.
        examples: the examples in the order of the file.
        note: why its labels are not used; "": they are, or there are none.
    """

    name: str
    source: str
    examples: list[Example[Input]]
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Splits(Generic[Input]):
    """All labelled data of a task.

    Attributes:
        all_train: all examples of the training files, including those used for validation or not
            drawn: they define the labels. Empty if a finished model is evaluated.
        train: the drawn examples to train on. Empty if a finished model is evaluated.
        validation: sets that the model is evaluated on; if there are several, each has its metrics.
        test: sets that are predicted at the end.
        files: what there is to report of the files, if a model is trained; otherwise it is
            reported at once.
    """

    all_train: list[Example[Input]]
    train: list[Example[Input]]
    validation: list[EvalSet[Input]]
    test: list[EvalSet[Input]]
    files: tuple[TableCounts, ...] = ()


def read_splits(
    data: LabelledData,
    read: Callable[[str, str, Report], Iterable[Example[Input]]],
    *,
    with_train: bool,
    default_names: Mapping[str, tuple[str, ...]] | None = None,
) -> Splits[Input]:
    """Reads the files that section `data` of a config names.

    Args:
        data: the section. `train`, `validation` and `test` are files, relative to `directory` if
            that is set, or "tfds:…"; `validation` and `test` may be several. Without a validation
            file, the fraction `validation_fraction` of the training examples is used. Of the
            remaining ones, `limit` are drawn at random to train on; 0: all.
        read: (source, split, report) → examples; the split is "train", "validation" or "test".
        with_train: whether training examples are required.
        default_names: by split, names of files in `directory`; if the config names no file, the
            existing ones are used.

    Raises:
        UserError: a file is missing or has no examples, or there is no file.
    """

    def sources(split: str) -> list[str]:
        return _sources(data, split, (default_names or {}).get(split, ()))

    files: list[TableCounts] = []
    report = files.append if with_train else TableCounts.say

    def read_all(source: str, split: str) -> list[Example[Input]]:
        return list(read(source, split, report))

    all_train: list[Example[Input]] = []
    train: list[Example[Input]] = []
    validation = _eval_sets(sources("validation"), "validation", read_all)
    if with_train or not validation:
        to_train = sources("train")
        if not to_train:
            raise OptionError("data.train", data.train, "give a file of examples to train on")
        all_train = [example for source in to_train for example in read_all(source, "train")]
        if not all_train:
            raise _no_examples(", ".join(to_train), "train")
        order = permute(np.arange(len(all_train)), len(all_train), derive_key(_SEED))
        if not validation:
            count = _validation_count(data.validation_fraction, len(all_train))
            chosen = np.sort(order[:count])
            eval_set = EvalSet("validation", to_train[0], [all_train[index] for index in chosen])
            validation, order = [eval_set], order[count:]
        kept = np.sort(order[: data.limit] if data.limit else order)
        train = [all_train[index] for index in kept]
    test = _eval_sets(sources("test"), "test", read_all)
    names = [eval_set.name for eval_set in (*validation, *test)]
    if len(set(names)) < len(names):
        raise UserError(f"two of the files {', '.join(names)} have the same name; rename one")
    if not with_train:
        return Splits([], [], validation, test)
    return Splits(all_train, train, validation, test, tuple(files))


def _sources(data: LabelledData, split: str, default_names: tuple[str, ...]) -> list[str]:
    key, named = f"data.{split}", getattr(data, split)
    names = [named] if isinstance(named, str) else list(named)
    directory = as_path(data.directory) if data.directory else None
    sources = []
    for name in filter(None, names):
        if name.startswith("tfds:"):
            sources.append(name)
            continue
        path = directory / name if directory and not is_remote(name) else as_path(name)
        if not _exists(path):
            problem = f"{path} does not exist"
            raise OptionError(key, name, f"give another file as {{{key}}}", problem)
        sources.append(str(path))
    if not sources and directory:
        paths = [directory / name for name in default_names]
        sources = [str(path) for path in paths if _exists(path)]
        if not sources and split == "train" and default_names:
            rule = f"it has no {default_names[0]}; name the file with {{{key}}}"
            raise OptionError("data.directory", str(directory), rule)
    return sources


def _exists(path: Path) -> bool:
    """Whether there is a file, or a folder, as of BEIR."""
    with reachable(path):
        return path.exists()


def _eval_sets(
    sources: list[str], split: str, read: Callable[[str, str], list[Example[Input]]]
) -> list[EvalSet[Input]]:
    names = [Path(source).name.split(".")[0] if len(sources) > 1 else split for source in sources]
    sets = [
        EvalSet(name, source, read(source, split))
        for name, source in zip(names, sources, strict=True)
    ]
    for eval_set in sets:
        if not eval_set.examples:
            raise _no_examples(eval_set.source, split)
    return sets


def _no_examples(source: str, split: str) -> OptionError:
    key, problem = f"data.{split}", f"{source}: no examples"
    return OptionError(key, source, f"give another file as {{{key}}}", problem)


def _validation_count(share: float, count: int) -> int:
    if not 0 < share < 1:
        rule = "without {data.validation} it must lie between 0 and 1"
        raise OptionError("data.validation_fraction", share, rule)
    chosen = round(share * count)
    if not 0 < chosen < count:
        rule = "set another {data.validation_fraction}, or give a file as {data.validation}"
        problem = (
            f"no file is given for validation, and {share} of {count} examples rounds to {chosen}"
        )
        raise OptionError("data.validation_fraction", share, rule, problem)
    return chosen
