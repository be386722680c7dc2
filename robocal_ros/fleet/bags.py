# SPDX-License-Identifier: Apache-2.0
"""Bags of a fleet: what is asked of them, where they are, what they can answer, of which arms."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from posixpath import basename, dirname
from typing import Any

from robocal_ros import __version__, registry
from robocal_ros.errors import ConfigurationError, DataError
from robocal_ros.estimators import Follower, estimator
from robocal_ros.fleet import storage
from robocal_ros.messages import JOINT_STATE, MARKS, Bag, marks, marks_in
from robocal_ros.results import grouped

ROBOT = '{robot}'
"""Placeholder for a robot's name in URIs."""

NAMESPACE, FOLDER = 'namespace', 'folder'
"""Sources of a robot's name besides its description and patterns."""

_SUFFIXES = ('.mcap', '.db3')
_METADATA = 'metadata.yaml'
_JOINT_STATES = '/joint_states'


@dataclass(frozen=True)
class Request:
    """What to estimate, and how.

    Attributes:
        output: URI of the output folder.
        urdf: URI of the URDF; empty for the description in each bag.
        params_files: URIs of parameter files; later ones override earlier ones.
        overrides: Names and texts of single parameters, which override files.
        results_dir: URI of the folder of stored results to build on; empty for none.
        robot_from: Source of robot names: ``namespace``, ``folder``, or a regular expression with
            one group that is searched in the bag's URI; empty for the description's name.
        namespace: Namespace of the robot's topics; empty for all.
        remapped: Names and topics in the bags.
        capabilities: What to estimate; empty for all that marks name.

    ``urdf``, ``params_files`` and ``results_dir`` may contain ``{robot}``.

    """

    output: str
    urdf: str = ''
    params_files: tuple[str, ...] = ()
    overrides: tuple[tuple[str, str], ...] = ()
    results_dir: str = ''
    robot_from: str = ''
    namespace: str = ''
    remapped: tuple[tuple[str, str], ...] = ()
    capabilities: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check the options; raises ConfigurationError."""
        for name in self.capabilities:
            estimator(name)
        if self.robot_from not in ('', NAMESPACE, FOLDER):
            try:
                groups = re.compile(self.robot_from).groups
            except re.error as error:
                raise ConfigurationError(
                    f"--robot-from '{self.robot_from}' is no regular expression: {error}."
                ) from error
            if groups != 1:
                raise ConfigurationError(
                    f"--robot-from '{self.robot_from}' has {groups} groups; expected '{NAMESPACE}'"
                    f", '{FOLDER}', or a regular expression with one group, such as "
                    "'/(arm_[0-9]+)/'.")
        for uri in (self.urdf, *self.params_files):
            if ROBOT in uri and not self.robot_from:
                raise ConfigurationError(
                    f"'{uri}' depends on the robot's name, which is in the URDF. Say with "
                    '--robot-from where the names come from.')

    def sha256(self) -> str:
        """Return the hash of the options, the files that they name, and the version.

        Raises:
            ConfigurationError: If a file does not exist.

        """
        content, files = asdict(self), []
        del content['output']
        for option, uri in (('--urdf', self.urdf), ('--results-dir', self.results_dir),
                            *(('--params-file', uri) for uri in self.params_files)):
            if not uri:
                continue
            inner = storage.joined(uri, '*.yaml') if option == '--results-dir' else uri
            # Of all robots.
            fs, path = storage.opened(inner.replace(ROBOT, '*'))
            try:
                names = sorted(fs.glob(path) if '*' in path else [path])
                files += [(name, hashlib.sha256(fs.cat_file(name)).hexdigest()) for name in names]
            except OSError as error:
                raise ConfigurationError(
                    f"{option} '{uri}' cannot be read: {error}. Correct its name.") from error
            if not names and option != '--results-dir':
                raise ConfigurationError(f"{option} '{uri}': there is no such file.")
        return hashlib.sha256(json.dumps([__version__, content, files]).encode()).hexdigest()


# ------------------------------------------------------------------------------ places


@dataclass(frozen=True)
class BagPlace:
    """A bag and where it is.

    Attributes:
        uri: URI of its folder, or of its only file.
        files: URIs of its files, sorted.
        fingerprint: Hash of what the file system says of its files, such as sizes and dates.

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
    for folder, paths in grouped(sorted(files), lambda path: dirname(path) or '.').items():
        messages = [path for path in paths if path.endswith(_SUFFIXES)]
        described = [path for path in paths if basename(path) == _METADATA]
        bags = {folder: sorted(messages + described)} if described and messages else {
            path: [path] for path in messages}
        for place, members in bags.items():
            told = json.dumps([files[path] for path in members], default=str)
            yield BagPlace(
                storage.below(uri, base, place),
                tuple(storage.below(uri, base, path) for path in members),
                hashlib.sha256(told.encode()).hexdigest())


# -------------------------------------------------------------------------------- arms


@dataclass(frozen=True)
class Arm:
    """An arm in a bag, and what can be estimated of it.

    Attributes:
        namespace: Namespace of its topics.
        capabilities: Names of what its marks, or the request, ask for.
        alone: Whether no other arm is in the bag.

    """

    namespace: str
    capabilities: tuple[str, ...]
    alone: bool


def arms_in(bag: Bag, request: Request) -> list[Arm]:
    """Return the arms in a bag.

    Marks name the runs that were recorded. A bag without marks is asked what the request names.

    Returns:
        The arms; some of them without capabilities if the request asks for others than are marked.

    Raises:
        DataError: If the bag does not say what it can answer.

    """
    # Namespaces in which a node of a capability has published marks.
    pattern = rf'(.*)/({"|".join(registry.nodes())})/{marks.TOPIC}'
    marked = sorted({match[1] for topic, kind in bag.topics.items()
                     if kind == MARKS and bag.counts[topic]
                     and (match := re.fullmatch(pattern, topic))})
    wanted = request.capabilities or tuple(registry.estimators())
    if not marked:
        spaces = sorted(topic.removesuffix(_JOINT_STATES) for topic, kind in bag.topics.items()
                        if kind == JOINT_STATE and topic.endswith(_JOINT_STATES))
        if not spaces:
            raise DataError(
                f"Bag '{bag.name}' holds neither joint states nor marks of a run; it has "
                f'{", ".join(sorted(bag.topics)) or "no topics"}. Record with robocal record.')
        if not request.capabilities:
            raise DataError(
                f"Bag '{bag.name}' holds no marks of a run, so it does not say what was measured. "
                'Name what to estimate from the whole bag with --capability, or record with '
                'robocal record while the node runs.')
        found = dict.fromkeys(spaces, request.capabilities)
    else:
        found = {space: tuple(name for name in wanted if _is_marked(bag, space, name))
                 for space in marked}
        if not request.capabilities and not any(found.values()):
            raise DataError(
                f"The marks in bag '{bag.name}' belong to no complete run. Name what to estimate "
                'with --capability, or record the run to its end.')
    if request.namespace:
        own = f'/{request.namespace.strip("/")}'
        if own not in found:
            raise DataError(
                f"Bag '{bag.name}' has no arm in namespace '{own}', but in "
                f'{", ".join(repr(space or "/") for space in found)}.')
        return [Arm(own, found[own], False)]
    return [Arm(space, names, len(found) == 1) for space, names in found.items()]


def robot_name(request: Request, uri: str, arm: Arm) -> str:
    """Return an arm's name by the request, empty for that of its description.

    Raises:
        DataError: If the source of the name does not yield one.

    """
    source = request.robot_from
    name = arm.namespace.strip('/') if source == NAMESPACE else name_in_path(request, uri)
    if source and not name:
        raise DataError(f"--robot-from '{source}' yields no name for '{uri}'"
                        f'{f", namespace {arm.namespace!r}" if source == NAMESPACE else ""}.')
    return name


def name_in_path(request: Request, uri: str) -> str:
    """Return the robot's name in a bag's URI by the request, empty if there is none."""
    if request.robot_from == FOLDER:
        return ''.join(storage.names_in_path(uri)[-2:-1])
    if request.robot_from in ('', NAMESPACE):
        return ''
    match = re.search(request.robot_from, uri)
    return (match[1] or '') if match else ''


def _is_marked(bag: Bag, namespace: str, name: str) -> bool:
    """Return whether a complete run of a capability is marked."""
    chosen = estimator(name)
    topic = f'{namespace}/{chosen.node}/{marks.TOPIC}'
    found = list(marks_in(bag, topic)) if bag.topics.get(topic) == MARKS else []
    if isinstance(chosen, Follower):
        return bool(marks.tares(found))
    return any(mark.name == marks.END and mark.service in chosen.services for mark in found)
