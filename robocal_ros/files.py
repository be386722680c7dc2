# SPDX-License-Identifier: Apache-2.0
"""Reading of regular files, strict reading of YAML, and atomic writing of files.

msgspec validates against a schema; its errors become sentences that name file and key, what was
expected, what was found, and what to do.
"""

from __future__ import annotations

import errno
import gc
import os
import re
import stat
import sys
import tempfile
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Annotated, Any, BinaryIO, TypeVar

import msgspec
import yaml

from robocal_ros.errors import ConfigurationError, FileFormatError

T = TypeVar('T')

REMEDY = 'Correct the file, or restore the one that the program wrote.'
_SHOWN = 60
_LARGEST = sys.float_info.max
# Deepest nesting and most values of a YAML text, which take about a second of processor time, and
# most characters of a number: converting it may take a time that grows with their square.
_NESTING, _VALUES, _DIGITS = 100, 100_000, 1000

FILE_LIMIT = 16 * 10**6
"""Largest file that is read at once [bytes]; the largest results have some 10⁵."""

Finite = Annotated[float, msgspec.Meta(ge=-_LARGEST, le=_LARGEST)]
"""A number that is neither infinite nor NaN."""

NonNegative = Annotated[float, msgspec.Meta(ge=0.0, le=_LARGEST)]
"""A finite number that is not negative."""

Positive = Annotated[float, msgspec.Meta(gt=0.0, le=_LARGEST)]
"""A finite number above zero."""


class Section(msgspec.Struct, forbid_unknown_fields=True):
    """Mapping of a file with exactly the keys of its schema."""


# ---------------------------------------------------------------------------- reading

_Loader: Any = getattr(yaml, 'CSafeLoader', yaml.SafeLoader)


class _StrictLoader(_Loader):  # type: ignore[misc]
    """Safe loader of plain values.

    It refuses duplicate keys, of which YAML uses the last, and endless numbers.
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Return the mapping; raises ConstructorError for duplicate keys."""
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if (key.tag, key.value) in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key '{key.value}' is duplicate", key.start_mark)
            seen.add((key.tag, key.value))
        return super().construct_mapping(node, deep)

    def construct_scalar(self, node: yaml.ScalarNode) -> Any:
        """Return the text of a value."""
        if len(node.value) > _DIGITS and node.tag.endswith((':int', ':float')):
            raise yaml.YAMLError(f'a number with more than {_DIGITS} characters')
        return super().construct_scalar(node)


def _check_size(text: str) -> None:
    """Raise a YAMLError for a text that cannot be loaded in bounded time.

    Such are aliases, by which a few lines stand for billions of values, and nesting that would
    overflow the stack.
    """
    depth = count = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.AliasEvent):
            raise yaml.YAMLError(f'the alias *{event.anchor}')
        count += isinstance(event, yaml.NodeEvent)
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > _NESTING or count > _VALUES:
            raise yaml.YAMLError(f'more than {_NESTING} nested values' if depth > _NESTING
                                 else f'more than {_VALUES} values')


def exists(path: Path, what: str) -> bool:
    """Return whether there is a file; raises ConfigurationError if that cannot be looked up."""
    try:
        path.stat()
    except FileNotFoundError:
        return False
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f'The {what} {path} cannot be read: {getattr(error, "strerror", error)}. Correct its '
            'name or the permissions of its folder.') from error
    return True


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading.

    Raises:
        OSError: If it cannot be opened, or is none: a named pipe would be waited for, and a device
            may be endless.

    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, 'it is a folder, a named pipe or a device')
    return os.fdopen(descriptor, 'rb')


def read_bytes(
    path: Path, what: str, remedy: str = 'Correct its name or its permissions.',
    limit: int = FILE_LIMIT,
) -> bytes:
    """Return the content of a regular file.

    Args:
        path: The file.
        what: Expected kind of file, e.g. ``URDF``.
        remedy: What to do if it cannot be read.
        limit: Largest size [bytes].

    Raises:
        ConfigurationError: If it cannot be read, or is not a regular file.
        FileFormatError: If it is too large.

    """
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            # Files of the kernel have no size.
            content = file.read(limit + 1) if size <= limit else b''
    except OSError as error:
        raise ConfigurationError(
            f'The {what} {path} cannot be read: {error.strerror}. {remedy}') from error
    if (size := max(size, len(content))) > limit:
        raise FileFormatError(
            f'The {what} {path} has {size / 1e6:.0f} MB; expected at most {limit / 1e6:.0f} MB. '
            f'{remedy}')
    return content


def read_text(
    path: Path, what: str, remedy: str = 'Correct its name or its permissions.',
    limit: int = FILE_LIMIT,
) -> str:
    """Return the text of a regular file; arguments and errors as for ``read_bytes``.

    Raises:
        FileFormatError: Also if it is not UTF-8 text.

    """
    try:
        return read_bytes(path, what, remedy, limit).decode()
    except UnicodeDecodeError as error:
        raise FileFormatError(
            f'The {what} {path} is not text in UTF-8 ({error.reason} at byte {error.start}). '
            f'{remedy}') from error


def load(text: str, name: str) -> object:
    """Return the plain values of a YAML text of the named file.

    Raises:
        FileFormatError: If the text is not YAML of plain values, or has too many.

    """
    # Searching the growing values for garbage takes most of the time, and holds the interpreter
    # for up to 130 ms, in which no other thread runs.
    collects = gc.isenabled()
    gc.disable()
    try:
        _check_size(text)
        return yaml.load(text, Loader=_StrictLoader)
    # PyYAML also raises these, for invalid dates and numbers, misplaced tags, infinite nesting.
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError,
            RecursionError) as error:
        reason = ' '.join(str(error).split()) or type(error).__name__
        raise FileFormatError(
            f'{name} is not valid YAML ({reason}); expected a file as written by this package. '
            f'{REMEDY}'
        ) from error
    finally:
        if collects:
            gc.enable()


def refuse(
    name: str, key: str, expected: str, got: object, remedy: str = REMEDY
) -> FileFormatError:
    """Return the error of an unexpected value.

    Args:
        name: Name of the file.
        key: Key in the file, e.g. ``robot.name``.
        expected: Expected value in words.
        got: Value found.
        remedy: What to do.

    """
    return FileFormatError(
        f"{name}, key '{key}': expected {expected}, got {_shown(got)}. {remedy}")


def convert(
    value: object, schema: type[T], name: str, at: str = '',
    arrays: Callable[[type, Any], Any] | None = None,
) -> T:
    """Return plain values as a schema's type.

    Args:
        value: Plain values as returned by ``load``.
        schema: Type known to msgspec: a ``Section`` or dataclass, or lists and mappings of such.
        name: Name of the file, for error messages.
        at: Key of the value in the file; empty for the whole.
        arrays: Returns a value of a type that msgspec does not know, such as an array.

    Raises:
        FileFormatError: For a missing or unknown key, or an invalid value.

    """
    try:
        return msgspec.convert(value, schema, dec_hook=arrays)
    except msgspec.ValidationError as error:
        raise _refusal(str(error), value, schema, name, at) from error


def read_as(path: Path, what: str, schema: type[T]) -> T:
    """Return a YAML file as a schema's type; arguments and errors as of what it is read with."""
    return convert(load(read_text(path, what), str(path)), schema, str(path))


# What is wrong; then, if it is not the whole, whether it is a key of the mapping, and the path.
_MESSAGE = re.compile(r'(.*?)(?: - at (`key` in )?`\$(.*)`)?\Z', re.DOTALL)
# A field, an index, or any value of a mapping, of which msgspec does not tell the key.
_STEP = re.compile(r'\.(\w+)|\[(\d+)\]|\[\.\.\.\]')
_FIELD = re.compile(r'Object (contains unknown|missing required) field `(.*)`', re.DOTALL)
_FINITE = re.compile(rf'float [<>]= -?{re.escape(repr(_LARGEST))}')
_TYPE = re.compile(r'\b(float|int|str|bool|object|array)\b|\|')
_WORDS = {'float': 'a number', 'int': 'a whole number', 'str': 'a string', 'bool': 'true or false',
          'object': 'a mapping', 'array': 'a list', '|': 'or'}


def _refusal(message: str, value: Any, schema: Any, name: str, at: str) -> FileFormatError:
    """Return a message of msgspec as a sentence with key and value."""
    what, of_keys, path = _MESSAGE.findall(message)[0]
    steps = [key or (int(index) if index else None) for key, index in _STEP.findall(path)]
    for step in steps:
        if step is None:
            break
        value = value[step]
    place = f'{at}{path}'.lstrip('.')
    field = _FIELD.fullmatch(what)
    if field is not None:
        key = f'{place}.{field[2]}'.lstrip('.')
        if field[1].startswith('missing'):
            return refuse(name, key, 'a value', 'nothing')
        return FileFormatError(
            f"{name}, key '{key}' is unknown; expected only {_allowed(schema, steps)}. {REMEDY}")
    if of_keys:
        expected = 'a mapping with strings as keys'
    elif what.startswith('Invalid enum value'):
        expected = f'one of {_allowed(schema, steps)}'
    elif what.startswith('Expected'):
        expected = what.removeprefix('Expected ').partition(', got')[0].replace('`', '')
        expected = _TYPE.sub(lambda found: _WORDS[found[0]],
                             _FINITE.sub('a finite number', expected))
        if expected == 'a mapping' and _allowed(schema, steps):
            expected += f' with {_allowed(schema, steps)}'
    else:
        # The remaining case: an integer beyond the range of floats.
        expected = 'a number of at most 64 bits'
    return refuse(name, place or 'the whole file', expected, value)


def _allowed(schema: Any, steps: Sequence[str | int | None]) -> str:
    """Return the keys or choices that a schema allows at a place, empty for any."""
    info: Any = msgspec.inspect.type_info(schema)
    for step in steps:
        if step is None:
            info = info.value_type
        elif isinstance(step, int):
            info = info.item_type
        else:
            info = next(field.type for field in info.fields if field.encode_name == step)
    if isinstance(info, msgspec.inspect.EnumType):
        return ', '.join(str(item.value) for item in info.cls)
    if isinstance(info, msgspec.inspect.LiteralType):
        return ', '.join(map(repr, info.values))
    return ', '.join(field.encode_name for field in getattr(info, 'fields', ()))


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f'{text[:_SHOWN]} …'


# ---------------------------------------------------------------------------- writing


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file atomically: the old or the new one is complete at any time.

    Raises:
        OSError: If it cannot be written.

    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(
        dir=path.parent, prefix=f'.{path.name}.', suffix='.tmp')
    try:
        with os.fdopen(descriptor, 'wb') as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp creates private files.
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    finally:
        Path(temporary).unlink(missing_ok=True)
    # Flush the renaming too.
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_output(path: Path, content: str, what: str) -> None:
    """Write a file that the user has named, atomically.

    Args:
        path: The file.
        content: Its content.
        what: What it is, for the message.

    Raises:
        ConfigurationError: If it cannot be written.

    """
    try:
        write_atomically(path, content)
    except OSError as error:
        raise ConfigurationError(
            f'The {what} could not be written to {path} ({error.strerror or error}). Make the '
            'folder writable or name another file.') from error


class PartFile:
    """File that is written beside its place, and moved there once it is complete.

    A context manager, which removes it after an error.

    Attributes:
        path: Its place.
        file: The file that is open.

    """

    def __init__(self, path: Path) -> None:
        """Begin the file.

        Raises:
            ConfigurationError: If it cannot be written.

        """
        self.path = path
        self._part = path.with_name(f'{path.name}.part')
        try:
            # Whatever an earlier run or another program has left there, such as a named pipe.
            self._part.unlink(missing_ok=True)
            self.file = self._part.open('wb')
        except OSError as error:
            raise ConfigurationError(
                f"The file '{path}' cannot be written: {error}. Name a file in a folder where "
                'you may write.') from error
        self._begin()

    def _begin(self) -> None:
        """Write what a file begins with."""

    def _finish(self) -> None:
        """Write what a file ends with."""

    def restart(self) -> None:
        """Discard all that was written."""
        self.file.seek(0)
        self.file.truncate()
        self._begin()

    def __enter__(self: T) -> T:
        """Return itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *others: object) -> None:
        """Complete the file and move it to its place, or remove it after an error."""
        with self.file:
            if kind is None:
                self._finish()
        if kind is None:
            self._part.replace(self.path)
        else:
            self._part.unlink()
