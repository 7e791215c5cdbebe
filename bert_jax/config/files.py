"""Config files: Python with a function `get_config`, whose parameters are the file's arguments."""

import ast
import importlib.util
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bert_jax.errors import UserError


def config_path(name: str) -> Path:
    """The file of that path, else the package's config of that name.

    Raises:
        UserError: there is neither.
    """
    path = Path(name)
    if path.is_file():
        return path
    files = package_configs()
    if name not in files:
        known = ", ".join(files)
        raise UserError(f"--config {name}: no such file, and no config of the package: {known}")
    return files[name]


def package_configs() -> dict[str, Path]:
    """The configs that come with the package, by name: of an installed one, else of a clone."""
    package = Path(__file__).parents[1]
    folders = (package / "configs", package.parent / "configs")
    directory = next(filter(Path.is_dir, folders), package)
    return {file.stem: file for file in sorted(directory.glob("*.py"))}


def function_of(path: Path) -> Callable[..., Any]:
    """The function `get_config` of a file, which is run.

    Raises:
        UserError: it is not Python, has no such function, or raises an error.
    """
    spec = importlib.util.spec_from_file_location("bert_jax_config", path)
    if spec is None or spec.loader is None:
        raise UserError(f"--config {path}: a config is a Python file; give FILE.py")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise UserError(f"{path}:{error.lineno}: {error.msg}") from error
    except Exception as error:  # the file runs code of the user
        raise UserError(f"{path}: {type(error).__name__}: {error}") from error
    function = getattr(module, "get_config", None)
    if not callable(function):
        raise UserError(f"{path} has no function get_config")
    return function


def call_config(
    path: Path, text: str, values: Mapping[str, Any] = MappingProxyType({})
) -> tuple[Any, frozenset[str]]:
    """Calls `get_config` of a file.

    Args:
        path: the file.
        text: arguments as `name=value,name=value`, read as the types of the parameters.
        values: further values, of which those of parameters are arguments.

    Returns:
        The result, and the names of the values that were arguments.

    Raises:
        UserError: the file or an argument is wrong.
    """
    function = function_of(path)
    parameters = inspect.signature(function).parameters
    arguments: dict[str, Any] = {}
    for item in filter(None, text.split(",")):
        name, equals, value = item.partition("=")
        if not equals or name not in parameters:
            raise UserError(
                f"{path}: argument {item!r} is not name=value of one of {', '.join(parameters)}"
            )
        arguments[name] = value if _kind(parameters[name]) is str else parse(value)
        _check_argument(path, parameters[name], arguments, shown=value)
    own = {name: value for name, value in values.items() if name in parameters}
    for name, value in own.items():
        arguments[name] = value
        _check_argument(path, parameters[name], arguments, shown=value)
    try:
        return function(**arguments), frozenset(own)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    except Exception as error:
        for name, value in arguments.items():
            if isinstance(error, KeyError) and error.args == (value,):  # of a table of the file
                raise UserError(
                    f"{path}: argument {name} is {value!r}, which is unknown"
                ) from error
        raise UserError(f"{path}: get_config: {type(error).__name__}: {error}") from error


def _kind(parameter: inspect.Parameter) -> type:
    is_empty = parameter.default is inspect.Parameter.empty
    return str if is_empty else type(parameter.default)


def _check_argument(
    path: Path, parameter: inspect.Parameter, arguments: dict[str, Any], *, shown: object
) -> None:
    """Replaces a whole number by a float where the parameter has one; refuses other types."""
    kind, name = _kind(parameter), parameter.name
    if kind is float:
        arguments[name] = with_point(arguments[name])
    if type(arguments[name]) is not kind:
        rule = f"it must be of type {kind.__name__}"
        raise UserError(f"{path}: argument {name} is {shown!r}; {rule}")


def parse(text: str) -> Any:
    """A Python literal, else the text itself; `true` and `false` count as literals too."""
    try:
        return ast.literal_eval(text.capitalize() if text.lower() in ("true", "false") else text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text


def with_point(value: Any) -> Any:
    """A whole number as a float; one that is too large, and other values, as they are."""
    try:
        return float(value) if type(value) is int else value
    except OverflowError:
        return value
