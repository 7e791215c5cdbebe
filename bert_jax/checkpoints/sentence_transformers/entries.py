"""The modules of a model directory, in their order: `modules.json`, with the routes of its Routers.

A Router (before version 5 called Asym) has lists of modules, the routes, and the kind of a text
chooses one. Here they are put in its place: what reads a model sees the modules of one kind of
texts, one after the other. Source: sentence-transformers 6.2, base/modules/router.py.

    router_config.json   of a Router, of an Asym config.json: `types`, folder → class; `structure`,
                         route → folders; `parameters`, how a route is found
"""

import ast
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from bert_jax.checkpoints.sentence_transformers import (
    CONFIG,
    ENCODERS,
    MLM_ENCODER,
    MODULES,
    MOST_MODULES,
    REMEDY,
    ROUTER,
    kind_of,
    not_supported,
)
from bert_jax.errors import OptionError, UserError, listed
from bert_jax.files import below, is_there, read_json, read_json_object
from bert_jax.models.vectors import SIDES

_ROUTERS = ("Router", "Asym")
_FIELDS = ("types", "structure", "parameters")
_MODALITY = "text"

PARAMETERS = ("default_route", "allow_empty_key", "route_mappings")
"""The fields of a Router that say how a route is found."""


def entries_of(directory: Path, route: str = "") -> list[dict[str, Any]]:
    """The entries of `modules.json` for texts of a kind, without Routers; none without the file.

    Args:
        directory: the model directory.
        route: the kind, such as one of `SIDES`; "": of texts of no kind.

    Raises:
        UserError: a file is damaged, a path leads out of the directory, or no route takes texts of
            this kind.
    """
    stored = _stored(directory)
    if not any(map(_is_router, stored)):
        return stored
    entries = []
    for entry in stored:
        entries += _Router(directory, entry).entries(route) if _is_router(entry) else [entry]
    # Names are most often numbers, and must differ.
    return [{key: entry[key] for key in entry if key != "name"} for entry in entries]


def has_routes(directory: Path) -> bool:
    """Whether there is a Router among the modules."""
    return any(map(_is_router, _stored(directory)))


def sides_of(directory: Path) -> tuple[str, ...]:
    """Those of `SIDES` that have other modules than texts of no kind.

    Raises:
        UserError: see `entries_of`; or a Router has a route that no text of a search takes.
    """
    for entry in _stored(directory):
        if _is_router(entry):
            _Router(directory, entry).check_used()
    default = entries_of(directory)
    return tuple(side for side in SIDES if entries_of(directory, side) != default)


def encoder_directory(directory: Path, route: str = "") -> Path:
    """The folder of the encoder and its tokenizer in a model directory: most often itself.

    Raises:
        UserError: see `entries_of`; or the modules begin with something else than an encoder.
    """
    entries = entries_of(directory, route)
    if not entries:
        return directory
    kind = kind_of(entries[0])
    if kind and kind.lower() not in (*ENCODERS, MLM_ENCODER.lower()):
        for_texts = f" for texts {route!r}" if route else ""
        what = f"{directory / MODULES} begins{for_texts} with the module {entries[0]['type']}"
        rule = "give a model that begins with an encoder, or one of its routes that does"
        raise UserError(f"{what}, which is not supported; {rule}")
    return directory / entries[0]["path"]


def module_folders(directory: Path) -> list[str]:
    """The folders below a model directory that `modules.json` and its Routers name.

    The folders in a Router are known when its file is there.
    """
    folders = []
    for entry in _stored(directory):
        folders.append(entry["path"])
        if _is_router(entry) and is_there(_file_of(directory, entry)):
            folders += _Router(directory, entry).folders.values()
    return list(dict.fromkeys(folder for folder in folders if folder))


def _stored(directory: Path) -> list[dict[str, Any]]:
    path = directory / MODULES
    if not is_there(path):
        return []
    entries = read_json(path)
    try:
        if not isinstance(entries, list) or not entries:
            raise TypeError("it must be a list of modules")
        if len(entries) > MOST_MODULES:
            raise UserError(f"{path} has {len(entries):,} modules; the limit is {MOST_MODULES}")
        for entry in entries:
            _check_folder(directory, entry["path"], path)
            entry["type"].rpartition(".")
    except (AttributeError, TypeError, LookupError) as error:
        raise UserError(f"{path} is damaged: {error!r}; {REMEDY}") from error
    return entries


def _check_folder(directory: Path, folder: str, path: Path) -> None:
    if PurePosixPath(folder).as_posix() != ".":
        below(directory, folder, path)


def _is_router(entry: Mapping[str, Any]) -> bool:
    return kind_of(entry) in _ROUTERS


def _file_of(directory: Path, entry: Mapping[str, Any]) -> Path:
    """The file of a Router."""
    folder = directory / entry["path"]
    is_old = kind_of(entry) == "Asym" and not is_there(folder / ROUTER)
    return folder / (CONFIG if is_old else ROUTER)


class _Router:
    """The content of a Router's file."""

    def __init__(self, directory: Path, entry: Mapping[str, Any]) -> None:
        self._path = _file_of(directory, entry)
        fields = read_json_object(self._path, directory)
        try:
            self._types, self._structure = dict(fields["types"]), dict(fields["structure"])
            self._parameters = dict(fields["parameters"])
            self.folders = {
                name: (PurePosixPath(entry["path"]) / name).as_posix() for name in self._types
            }
            for name, kind in self._types.items():
                _check_folder(directory, self.folders[name], self._path)
                kind.rpartition(".")
            if not self._structure or not all(self._structure.values()):
                raise TypeError("a route has no modules")
            self._routes = {
                route: [{"path": self.folders[name], "type": self._types[name]} for name in names]
                for route, names in self._structure.items()
            }
            self._mappings = {
                ast.literal_eval(key): self._parameters["route_mappings"][key]
                for key in self._parameters.get("route_mappings") or {}
            }
        except (AttributeError, LookupError, SyntaxError, TypeError, ValueError) as error:
            raise UserError(f"{self._path} is damaged: {error!r}; {REMEDY}") from error
        for key, known, prefix in (
            *((key, _FIELDS, "") for key in fields),
            *((key, PARAMETERS, "parameters.") for key in self._parameters),
        ):
            if key not in known:
                raise not_supported(self._path, f"{prefix}{key}")

    def entries(self, kind: str) -> list[dict[str, Any]]:
        """The modules of texts of a kind."""
        route = self._route(kind)
        if route not in self._routes:
            raise UserError(f"{self._path}: there is no route {route!r}; {REMEDY}")
        return self._routes[route]

    def check_used(self) -> None:
        used = {self._route(kind) for kind in ("", *SIDES)}
        if unused := [route for route in self._routes if route not in used]:
            what = f"the route {unused[0]!r}, which neither queries nor documents take,"
            raise not_supported(self._path, what)

    def _route(self, kind: str) -> str:
        """The name of a route, as sentence-transformers finds it."""
        task = kind or None
        for key in ((task, _MODALITY), (task, None), (None, _MODALITY), (None, None)):
            if key in self._mappings:
                return str(self._mappings[key])
        for name in (task, _MODALITY):
            if name in self._routes:
                return str(name)
        default = self._parameters.get("default_route")
        if default is None and self._parameters.get("allow_empty_key", True):
            default = next(iter(self._routes))
        if task is None and default is not None:
            return str(default)
        lacks, known = f"route of texts {kind!r}" if kind else "default_route", [*self._routes]
        rule = f"take one of its routes, {listed(known)}, by `bert-jax convert --route`"
        raise OptionError("route", kind or None, rule, f"{self._path} has no {lacks}")
