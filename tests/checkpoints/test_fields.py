"""Each field of a file of a model directory is computed, carried over or refused, as listed."""

import dataclasses
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import bert_jax
from bert_jax.checkpoints.config_file import ModelDescription, config_bytes, read_config
from bert_jax.checkpoints.sentence_transformers.reading import read_vectors
from bert_jax.checkpoints.sentence_transformers.writing import vector_files as files_of_vectors
from bert_jax.errors import UserError
from bert_jax.files.manifest import MANIFEST
from bert_jax.models.execution import Execution
from bert_jax.models.head import fields_of
from bert_jax.tokenization import Tokenizer, load_tokenizer
from tests.checkpoints.fields import (
    CARRIED,
    COMPUTED,
    OTHER_FILES,
    REFUSED,
    Field,
    at,
    changed,
    refused,
    write,
)
from tests.checkpoints.fields.config_json import CONFIGS, MINIMAL_CONFIGS
from tests.checkpoints.fields.tokenizer_files import CONFIG, LIBRARY, TOKENIZERS, VOCABULARY
from tests.checkpoints.fields.vector_files import (
    ENCODER,
    FILES,
    MODEL,
    MODULES,
    POOLING,
    REFUSED_MODULES,
    VECTORS,
)

TESTS = Path(__file__).parents[1]


def check(fields: Mapping[str, Field], outcome_of: Callable[[str, Field], str]) -> None:
    """Compares the outcome of every field with its row."""
    rows = {path: field for path, field in fields.items() if not field.test}
    outcomes = {path: outcome_of(path, field) for path, field in rows.items()}
    assert outcomes == {path: field.outcome for path, field in rows.items()}


def refusal(problem: str, name: str, path: str, field: Field) -> str:
    """`REFUSED` if a message names the file, and the field or a value that is a name."""
    words = [path.rpartition(".")[2], *([field.value] if isinstance(field.value, str) else [])]
    is_named = name in problem and any(word in problem for word in words)
    return REFUSED if is_named else problem


def outcome(field: Field, *, is_same: bool, is_kept: bool, shown: Any) -> str:
    """`CARRIED` or `COMPUTED`, else what is wrong.

    Args:
        field: the field.
        is_same: whether nothing is computed in another way than without it.
        is_kept: whether the file that is saved has it.
        shown: the value of its observable.
    """
    if is_same:
        return CARRIED if is_kept else "dropped"
    return COMPUTED if shown == field.shows[1] else f"computed: {shown}"


def of_config(path: Path, base: ModelDescription, key: str, field: Field) -> str:
    """The outcome of a field of `config.json`."""
    model_type = base.family.model_type
    fields = {"model_type": model_type, **MINIMAL_CONFIGS[model_type], key: field.value}
    path.write_text(json.dumps(fields))
    try:
        described = read_config(path)
        for head in described.family.class_names:
            dataclasses.replace(described, head=head).make_module(Execution())
    except UserError as error:
        return refusal(str(error), path.name, key, field)
    path.write_bytes(config_bytes(dataclasses.replace(described, head="encoder")))
    assert read_config(path).config == described.config
    return outcome(
        field,
        is_same=described.config == base.config,
        is_kept=at(json.loads(path.read_text()), key) == field.value,
        shown=fields_of(described.config).get(field.shows[0]),
    )


@pytest.mark.slow
@pytest.mark.parametrize("model_type", CONFIGS)
def test_fields_of_config_json(tmp_path, model_type):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": model_type, **MINIMAL_CONFIGS[model_type]}))
    base = read_config(path)
    check(CONFIGS[model_type], lambda key, field: of_config(path, base, key, field))


def of_vectors(directory: Path, name: str, path: str, field: Field) -> str:
    """The outcome of a field of a file of sentence-transformers."""
    write(directory, FILES)
    before = read_vectors(directory)
    write(directory, {name: changed(FILES[name], path, field.value)})
    after = read_vectors(directory)
    write(directory, {name: FILES[name]})
    if after.unsupported:
        return refusal(after.unsupported, name, path, field)
    written = files_of_vectors(after, 16)
    return outcome(
        field,
        is_same=dataclasses.replace(after, other=before.other) == before,
        is_kept=at(json.loads(written[name]), path) == field.value,
        shown=getattr(after, field.shows[0], None),
    )


@pytest.mark.parametrize("name", VECTORS)
def test_fields_of_sentence_transformers(tmp_path, name):
    check(VECTORS[name], lambda path, field: of_vectors(tmp_path, name, path, field))


def test_modules_of_sentence_transformers(tmp_path):
    for name in REFUSED_MODULES:
        field = refused(f"sentence_transformers.models.{name}")
        for path in ("0.type", "1.type", "2.type"):
            assert of_vectors(tmp_path, MODULES, path, field) == REFUSED


def shown_by(tokenizer: Tokenizer, name: str) -> Any:
    """The value of an observable, see `fields.tokenizer_files`."""
    kind, _, text = name.partition(" ")
    if hasattr(tokenizer.special_ids, name):
        return getattr(tokenizer.special_ids, name)
    if hasattr(tokenizer, name):
        return getattr(tokenizer, name)
    if name == "types":
        return tokenizer.encode_batch(["a"], ["a"])[0].type_ids
    if kind == "decoded":
        return tokenizer.decode(tokenizer.encode_batch([text])[0].ids)
    if kind == "offsets":
        return tokenizer.encode_batch([text.removeprefix("of ")])[0].offsets
    return tokenizer.encode_batch([name])[0].ids


OBSERVABLES = {
    field.shows[0]
    for fields in TOKENIZERS.values()
    for field in fields.values()
    if field.outcome == COMPUTED and not field.test
}


def of_tokenizer(directory: Path, name: str, path: str, field: Field) -> str:
    """The outcome of a field of a tokenizer's file."""

    def load() -> tuple[Tokenizer, dict[str, Any]]:
        tokenizer = load_tokenizer(directory)
        return tokenizer, {name: shown_by(tokenizer, name) for name in sorted(OBSERVABLES)}

    base = LIBRARY if name == "tokenizer.json" else VOCABULARY
    write(directory, base)
    _, before = load()
    write(directory, {name: changed(base.get(name, {}), path, field.value)})
    try:
        tokenizer, after = load()
    except UserError as error:
        return refusal(str(error), name, path, field)
    directory = directory / "saved"
    tokenizer.save(directory)
    assert load()[1] == after
    written = json.loads((directory / name).read_text()) if (directory / name).exists() else {}
    return outcome(
        field,
        is_same=after == before,
        is_kept=at(written, path) == field.value,
        shown=after.get(field.shows[0]),
    )


@pytest.mark.parametrize("name", TOKENIZERS)
def test_fields_of_tokenizers(tmp_path, name):
    def in_new_directory(path: str, field: Field) -> str:
        directory = tmp_path / path.replace(".", "_")
        directory.mkdir()
        return of_tokenizer(directory, name, path, field)

    check(TOKENIZERS[name], in_new_directory)


def test_a_loaded_model_keeps_what_is_carried_over(base_model, tmp_path):
    lists = {"config.json": CONFIGS["bert"], CONFIG: TOKENIZERS[CONFIG]}
    lists |= {name: VECTORS[name] for name in (MODULES, ENCODER, MODEL)}
    files = {name: json.loads((base_model / name).read_text()) for name in list(lists)[:2]}
    files |= {name: FILES[name] for name in (ENCODER, MODEL, POOLING)}
    files[MODULES] = FILES[MODULES][:2]  # without modules that have weights
    carried = [
        (name, path, field.value)
        for name, fields in lists.items()
        for path, field in fields.items()
        if field.outcome == CARRIED
    ]
    for name, path, value in carried:
        files[name] = changed(files[name], path, value)
    shutil.copytree(base_model, tmp_path / "model")
    (tmp_path / "model" / MANIFEST).unlink()  # the checksums of what is changed
    write(tmp_path / "model", files)

    bert_jax.load(tmp_path / "model").save(tmp_path / "again")

    saved = {name: json.loads((tmp_path / "again" / name).read_text()) for name in lists}
    assert [row for row in carried if at(saved[row[0]], row[1]) != row[2]] == []


def test_every_test_that_a_row_names_exists():
    text = "".join(path.read_text() for path in TESTS.rglob("test_*.py"))
    files = *CONFIGS.values(), *VECTORS.values(), *TOKENIZERS.values()
    named = {field.test for fields in files for field in fields.values()} - {""}
    assert {name for name in named if f"def {name}(" not in text} == set()


def test_the_documentation_lists_every_file():
    text = (TESTS.parent / "docs" / "models.md").read_text()
    table = text.partition("| file | loading | saving |")[2].partition("\n\n")[0]
    assert "the folders that it names" in table  # of modules
    names = {name for name in (*OTHER_FILES, *VECTORS, *TOKENIZERS) if "/" not in name}
    assert {name for name in names if f"`{name}`" not in table} == set()
