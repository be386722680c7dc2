# SPDX-License-Identifier: Apache-2.0
"""Search for the bags of a fleet in folders and object stores."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from robocal_ros.errors import ConfigurationError
from robocal_ros.fleet import storage

_SUFFIXES = ('.mcap', '.db3')
_METADATA = 'metadata.yaml'
# What file systems call the version of a file.
_VERSIONS = ('ETag', 'etag', 'md5Hash', 'content_md5', 'mtime', 'LastModified', 'last_modified',
             'updated', 'modified', 'date_time', 'CRC')


@dataclass(frozen=True)
class BagPlace:
    """A bag and where it is.

    Attributes:
        uri: URI of its folder, or of its only file.
        files: URIs of its files, sorted.
        fingerprint: Hash of the sizes and dates of its files.

    """

    uri: str
    files: tuple[str, ...]
    fingerprint: str


def find_bags(places: Iterable[str]) -> list[BagPlace]:
    """Return the bags in some places, each once, sorted by URI.

    Args:
        places: Paths or URIs: of a bag, a folder to search with all below it, a pattern of such
            with ``*``, ``?`` or ``[``, or a ``.txt`` file with one of these a line.

    Raises:
        ConfigurationError: If there is no bag in a place.

    """
    found: dict[str, BagPlace] = {}
    for place in _listed(places):
        uri = storage.absolute(place)
        try:
            bags = list(_bags_in(uri))
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                f"'{place}' cannot be searched for bags: {' '.join(str(error).split())}. Correct "
                'its name, or its permissions.') from error
        if not bags:
            raise ConfigurationError(
                f"No bag in '{place}'; expected folders of rosbag2, or .mcap or .db3 files, there "
                'or below it.')
        found |= {bag.uri: bag for bag in bags}
    return [found[uri] for uri in sorted(found)]


def _listed(places: Iterable[str]) -> Iterator[str]:
    for place in places:
        if not place.endswith('.txt'):
            yield place
            continue
        try:
            text = storage.read_bytes(place).decode()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(
                f"The list '{place}' cannot be read: {error}. Expected one place of bags a line."
            ) from error
        yield from (line.strip() for line in text.splitlines()
                    if line.strip() and not line.startswith('#'))


def _bags_in(uri: str) -> Iterator[BagPlace]:
    fs, base = storage.opened(uri)
    tops = fs.glob(base) if any(sign in base for sign in '*?[') else [base]
    files: dict[str, Mapping[str, Any]] = {}
    for top in tops:
        files |= {path: info for path, info in fs.find(top, detail=True).items()
                  if info['type'] == 'file'}
    by_folder: dict[str, list[str]] = {}
    for path in sorted(files):
        by_folder.setdefault(str(PurePosixPath(path).parent), []).append(path)
    for folder, paths in by_folder.items():
        messages = [path for path in paths if path.endswith(_SUFFIXES)]
        described = [path for path in paths if PurePosixPath(path).name == _METADATA]
        # PurePosixPath joins the two slashes of a URL.
        here = paths[0].rpartition('/')[0] or folder
        whole = [(here, messages + described)] if described else [
            (path, [path]) for path in messages]
        for place, members in whole:
            if messages:
                yield BagPlace(
                    storage.below(uri, base, place),
                    tuple(storage.below(uri, base, path) for path in sorted(members)),
                    _fingerprint([(path, files[path]) for path in sorted(members)]))


def _fingerprint(files: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    content = [
        (PurePosixPath(path).name, info.get('size'),
         [str(info[key]) for key in _VERSIONS if info.get(key) is not None])
        for path, info in files]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()
