# SPDX-License-Identifier: Apache-2.0
"""Files on this machine and in object stores, by URI through fsspec.

A URI without a protocol is a path of this machine. URIs are chained as fsspec does, e.g.
``zip://bags::https://example.org/week_7.zip``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

import fsspec
from fsspec.core import split_protocol, url_to_fs

from robocal_ros.errors import ConfigurationError
from robocal_ros.files import open_regular, write_atomically

_BLOCK = 1 << 20


def is_local(uri: str) -> bool:
    """Return whether a URI is a path of this machine."""
    protocol, _ = split_protocol(uri)
    return '::' not in uri and protocol in (None, 'file', 'local')


def absolute(uri: str) -> str:
    """Return a URI that other processes understand: paths of this machine become absolute."""
    first, sign, last = uri.rpartition('::')
    return first + sign + (str(local_path(last)) if is_local(last) else last.rstrip('/'))


def local_path(uri: str) -> Path:
    """Return the absolute path of a local URI."""
    _, path = split_protocol(uri)
    return Path(path).expanduser().absolute()


def opened(uri: str) -> tuple[Any, str]:
    """Return the file system of a URI, and the path within it.

    Raises:
        ConfigurationError: If its protocol is unknown, lacks a library, or cannot be reached.

    """
    try:
        fs, path = url_to_fs(absolute(uri))
    except (ImportError, ValueError, OSError) as error:
        raise ConfigurationError(
            f"'{uri}' cannot be opened: {' '.join(str(error).split())}. Expected a path, or a URI "
            f'of a protocol of fsspec: {", ".join(sorted(fsspec.available_protocols())[:8])}, … '
            'Install the library that the message names, with pip.') from error
    return fs, str(path)


def _split(uri: str) -> tuple[str, str, str]:
    """Return what is before, in and behind the part of a URI, which may be chained, with paths."""
    first, sign, rest = uri.partition('::')
    if sign and '://' not in first:
        before, path, behind = _split(rest)
        return f'{first}::{before}', path, behind
    return '', first, sign + rest


def below(uri: str, base: str, path: str) -> str:
    """Return the URI of a path of a file system.

    Args:
        uri: URI that the file system was opened with.
        base: Path within the file system that the URI stands for.
        path: The path.

    """
    before, own, behind = _split(uri)
    return before + own.removesuffix('/').removesuffix(base.rstrip('/')) + path + behind


def joined(uri: str, *names: str) -> str:
    """Return the URI of something below a URI."""
    before, own, behind = _split(uri)
    return before + '/'.join((own.rstrip('/'), *names)) + behind


def names_in_path(uri: str) -> list[str]:
    """Return the names in the path of a URI."""
    return [name for name in _split(uri)[1].split('/') if name]


def read_bytes(uri: str) -> bytes:
    """Return the content of a file; raises OSError."""
    if is_local(uri):
        with open_regular(local_path(uri)) as file:
            return file.read()
    fs, path = opened(uri)
    return fs.cat_file(path)


def write_bytes(uri: str, content: bytes) -> None:
    """Write a file so that the old or the new one is complete at any time.

    Object stores replace an object at once; local files are renamed.

    Raises:
        OSError: If it cannot be written.

    """
    if is_local(uri):
        write_atomically(local_path(uri), content)
        return
    fs, path = opened(uri)
    fs.makedirs(fs._parent(path), exist_ok=True)
    fs.pipe_file(path, content)


def fetched(uris: Iterable[str], folder: Path) -> list[Path]:
    """Return paths of files on this machine; those of elsewhere are copied into a folder.

    Raises:
        OSError: If one cannot be read.

    """
    paths = []
    for uri in uris:
        if is_local(uri):
            paths.append(local_path(uri))
            continue
        fs, path = opened(uri)
        folder.mkdir(parents=True, exist_ok=True)
        paths.append(folder / PurePosixPath(path).name)
        fs.get_file(path, str(paths[-1]))
    return paths


def exists(uri: str) -> bool:
    """Return whether there is a file."""
    fs, path = opened(uri)
    return bool(fs.exists(path))


def names_in(uri: str) -> list[str]:
    """Return the names of the files in a folder, sorted; empty if it does not exist."""
    fs, path = opened(uri)
    fs.invalidate_cache()
    return sorted(PurePosixPath(str(file)).name for file in fs.find(path, maxdepth=1))


def remove(uris: Iterable[str]) -> None:
    """Remove files; those that do not exist are ignored."""
    for uri in uris:
        fs, path = opened(uri)
        with suppress(FileNotFoundError):
            fs.rm_file(path)


def sha256_of(files: Iterable[Path]) -> str:
    """Return the hash of names and contents of files, in the order given."""
    digest = hashlib.sha256()
    for path in files:
        content = hashlib.sha256()
        with open_regular(path) as file:
            while block := file.read(_BLOCK):
                content.update(block)
        digest.update(f'{path.name}\0{content.hexdigest()}\0'.encode())
    return digest.hexdigest()
