# SPDX-License-Identifier: Apache-2.0
"""Reading of YAML that trusts nothing: every deviation is one sentence with file and key."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np
import yaml

from robocal_ros.arrays import Array
from robocal_ros.errors import FileFormatError

_CURE = 'Correct the file, or restore the one that the program wrote.'
_SHOWN = 60
_Loader: Any = getattr(yaml, 'CSafeLoader', yaml.SafeLoader)


class _UniqueKeyLoader(_Loader):  # type: ignore[misc]
    """A safe loader that refuses a key that stands twice, where YAML takes the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Build a dict; raises ConstructorError on the second of two equal keys."""
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if (key.tag, key.value) in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key '{key.value}' stands twice", key.start_mark
                )
            seen.add((key.tag, key.value))
        built: dict[Hashable, Any] = super().construct_mapping(node, deep)
        return built


def load(text: str, name: str) -> object:
    """Parse YAML into plain Python values.

    Args:
        text: The YAML.
        name: Name of the file, for the sentences.

    Raises:
        FileFormatError: If the text is not YAML of plain values.

    """
    try:
        return yaml.load(text, Loader=_UniqueKeyLoader)
    # Beyond its own errors PyYAML lets these escape: impossible dates and numbers, misplaced
    # tags (!!bool maybe), nesting without end.
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError,
            RecursionError) as error:
        reason = ' '.join(str(error).split()) or type(error).__name__
        raise FileFormatError(
            f'{name} is not readable YAML ({reason}); expected a file as this package writes '
            f'it. {_CURE}'
        ) from error


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f'{text[:_SHOWN]} …'


def refuse(name: str, key: str, expected: str, got: object, cure: str = _CURE) -> FileFormatError:
    """Return the error of a value that is not what it should be.

    Args:
        name: Name of the file.
        key: Where in the file, e.g. ``robot.name``.
        expected: What should be there.
        got: What is there.
        cure: What to do about it.

    """
    return FileFormatError(f"{name}, key '{key}': expected {expected}, got {_shown(got)}. {cure}")


class Section:
    """One mapping of a file, with exactly the keys that it should have.

    Every method reads the value of one key and raises FileFormatError if it is not of its kind.
    """

    def __init__(self, name: str, path: str, value: object, keys: Sequence[str]) -> None:
        """Check the keys.

        Args:
            name: Name of the file.
            path: Where the mapping stands in it, empty for the whole.
            value: What stands there.
            keys: The keys that it must have, no more and no fewer.

        Raises:
            FileFormatError: If it is no mapping, lacks a key or has another one.

        """
        self.name = name
        self._path = path
        if not isinstance(value, dict):
            raise refuse(name, path or 'the whole file', f'a mapping with {", ".join(keys)}',
                         value)
        missing = [key for key in keys if key not in value]
        if missing:
            raise refuse(name, self.path(missing[0]), 'a value', 'nothing')
        unknown = [key for key in value if key not in keys]
        if unknown:
            raise FileFormatError(
                f"{name}, key '{self.path(str(unknown[0]))}' is unknown; expected only "
                f'{", ".join(keys)}. {_CURE}'
            )
        self._value = value

    def path(self, key: str) -> str:
        """Return where in the file a key stands."""
        return f'{self._path}.{key}' if self._path else key

    def refuse(self, key: str, expected: str, cure: str = _CURE) -> FileFormatError:
        """Return the error of a key whose value is not what it should be."""
        return refuse(self.name, self.path(key), expected, self._value[key], cure)

    def raw(self, key: str) -> Any:
        """Return a value as it is."""
        return self._value[key]

    def text(self, key: str) -> str:
        """Read a text."""
        value = self._value[key]
        if not isinstance(value, str):
            raise self.refuse(key, 'a text')
        return value

    def one_of(self, key: str, choices: Iterable[str]) -> str:
        """Read a text that is one of a few."""
        allowed = tuple(choices)
        if self._value[key] not in allowed:
            raise self.refuse(key, f'one of {", ".join(allowed)}')
        return self.text(key)

    def flag(self, key: str) -> bool:
        """Read true or false."""
        value = self._value[key]
        if not isinstance(value, bool):
            raise self.refuse(key, 'true or false')
        return value

    def number(self, key: str, *, infinite: bool = False) -> float:
        """Read a number; it must be finite unless ``infinite`` allows an infinite one."""
        value = self._value[key]
        number = as_number(value)
        if number is None or np.isnan(number) or not (infinite or np.isfinite(number)):
            raise self.refuse(key, 'a number' if infinite else 'a finite number')
        return number

    def optional_number(self, key: str) -> float | None:
        """Read a finite number, or None where there is null."""
        return None if self._value[key] is None else self.number(key)

    def count(self, key: str) -> int:
        """Read a whole number that is not negative."""
        value = self._value[key]
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise self.refuse(key, 'a whole number, 0 or more')
        return value

    def items(self, key: str) -> list[tuple[str, Any]]:
        """Read a list; return its elements, each with its path."""
        value = self._value[key]
        if not isinstance(value, list):
            raise self.refuse(key, 'a list')
        return [(f'{self.path(key)}[{i}]', item) for i, item in enumerate(value)]

    def texts(self, key: str) -> tuple[str, ...]:
        """Read a list of texts."""
        for path, item in self.items(key):
            if not isinstance(item, str):
                raise refuse(self.name, path, 'a text', item)
        return tuple(self._value[key])

    def unique_texts(self, key: str) -> tuple[str, ...]:
        """Read a list of texts that all differ."""
        texts = self.texts(key)
        if len(set(texts)) != len(texts):
            raise self.refuse(key, 'names that all differ')
        return texts

    def vector(self, key: str, size: int | None = None) -> Array:
        """Read a list of finite numbers, of a given length if one is given."""
        for path, item in self.items(key):
            number = as_number(item)
            if number is None or not np.isfinite(number):
                raise refuse(self.name, path, 'a finite number', item)
        values = np.array([float(item) for item in self._value[key]], dtype=float)
        if size is not None and len(values) != size:
            raise refuse(self.name, self.path(key), f'{size} numbers', f'{len(values)} numbers')
        return values

    def matrix(self, key: str, size: int) -> Array:
        """Read a square matrix of finite numbers, shape (size, size)."""
        rows = self.items(key)
        if len(rows) != size:
            raise refuse(self.name, self.path(key), f'{size} rows', f'{len(rows)} rows')
        parsed = [
            Section(self.name, path, {'row': row}, ('row',)).vector('row', size)
            for path, row in rows
        ]
        return np.array(parsed, dtype=float).reshape(size, size)

    def names(self, key: str) -> tuple[str, ...]:
        """Read a mapping's keys, which must be texts."""
        value = self._value[key]
        if not isinstance(value, dict) or not all(isinstance(item, str) for item in value):
            raise self.refuse(key, 'a mapping with texts for keys')
        return tuple(value)

    def section(self, key: str, keys: Sequence[str] | None = None) -> Section:
        """Read a mapping with the given keys, or with whatever texts it has for keys."""
        return Section(self.name, self.path(key), self._value[key],
                       self.names(key) if keys is None else keys)

    def sections(self, key: str, keys: Sequence[str]) -> list[Section]:
        """Read a list of mappings, each with the given keys."""
        return [Section(self.name, path, item, keys) for path, item in self.items(key)]


def as_number(value: object) -> float | None:
    """Return a number as a float, infinite if it is too large; None if it is no number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return float('inf')
