# SPDX-License-Identifier: Apache-2.0
"""Parameter files of nodes, read without ROS."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeVar

from robocal_ros.errors import ConfigurationError, FileFormatError
from robocal_ros.files import load, read_text
from robocal_ros.parameters import ParameterTable, checked, declarations

T = TypeVar('T', bound=ParameterTable)

_SECTION = 'ros__parameters'
_NUMBER = re.compile(r'[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+')


def read_parameters(
    table: type[T], node: str, files: Sequence[Path], overrides: Mapping[str, str] | None = None,
    namespace: str = '',
) -> T:
    """Return a node's parameters from its files, as the node itself would read them.

    Args:
        table: The node's parameter table.
        node: Its name.
        files: Parameter files; later ones override earlier ones.
        overrides: Texts by parameter name, as on a command line; they override files.
        namespace: The node's namespace.

    Raises:
        FileFormatError: If a file is not a parameter file.
        ConfigurationError: If a value has the wrong type, is out of range, or a name given on
            the command line is unknown.

    """
    values: dict[str, Any] = {}
    for file in files:
        values |= _of_node(_document(file), f'/{namespace.strip("/")}/{node}'.replace('//', '/'),
                           str(file))
    known = {item.name: item for item in declarations(table)}
    for name, text in (overrides or {}).items():
        if name not in known:
            raise ConfigurationError(
                f"'{name}' is not a parameter of {node}; expected one of {', '.join(known)}.")
        is_text = known[name].element_type is str and not isinstance(known[name].default, list)
        values[name] = text if is_text else load(text, f'Parameter {name}')
    values = {name: _number(value) if name in known and known[name].element_type is float
              else value for name, value in values.items()}
    problems = [
        f"Parameter '{name}' is {value!r}; it must be {known[name].type_text()}."
        for name, value in values.items() if name in known and not known[name].fits(value)]
    if problems:
        raise ConfigurationError(' '.join(problems))
    return checked(table, values)


def _number(value: Any) -> Any:
    """Return texts such as 5e-4, which are numbers for ROS and not for YAML 1.1, as numbers."""
    if isinstance(value, list):
        return [_number(element) for element in value]
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        return float(value)
    return value


def _document(file: Path) -> dict[Any, Any]:
    document = load(read_text(file, 'parameter file'), str(file))
    if not isinstance(document, dict):
        raise FileFormatError(
            f"'{file}' is not a parameter file: expected '<node>:' and '{_SECTION}:' below it.")
    return document


def _of_node(document: Mapping[Any, Any], node: str, file: str, at: str = '') -> dict[str, Any]:
    """Return a file's parameters of a node; names, wildcards and namespaces may be nested."""
    found: dict[str, Any] = {}
    for key, value in document.items():
        if not isinstance(value, dict):
            raise FileFormatError(
                f"{file}, key '{key}': expected a mapping that leads to '{_SECTION}', got "
                f'{value!r}.')
        if key == _SECTION:
            if _matches(node, at):
                found |= _flat(value)
        else:
            found |= _of_node(value, node, file, f'{at}/{str(key).strip("/")}')
    return found


def _matches(node: str, pattern: str) -> bool:
    """Return whether a node's full name matches; ``**`` is any namespaces, ``*`` is one."""
    names, parts = node.strip('/').split('/'), pattern.strip('/').split('/')

    def fits(names: Sequence[str], parts: Sequence[str]) -> bool:
        if not parts:
            return not names
        if parts[0] == '**':
            return any(fits(names[skip:], parts[1:]) for skip in range(len(names) + 1))
        return bool(names) and fnmatchcase(names[0], parts[0]) and fits(names[1:], parts[1:])

    return fits(names, parts)


def _flat(values: Mapping[Any, Any], prefix: str = '') -> dict[str, Any]:
    """Return nested parameters by names with dots."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            found |= _flat(value, f'{prefix}{key}.')
        else:
            found[f'{prefix}{key}'] = value
    return found
