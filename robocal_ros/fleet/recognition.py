# SPDX-License-Identifier: Apache-2.0
"""Recognition of what a bag can answer, and for which arms."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from robocal_ros import registry
from robocal_ros.errors import DataError
from robocal_ros.estimators import Follower, estimator
from robocal_ros.fleet import storage
from robocal_ros.fleet.request import FOLDER, NAMESPACE, Request
from robocal_ros.messages import JOINT_STATE, MARKS, Bag, Mark, marks, marks_in

_JOINT_STATES = '/joint_states'


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
    marked = _marked_namespaces(bag)
    wanted = request.capabilities or tuple(registry.estimators())
    if not marked:
        spaces = _joint_namespaces(bag)
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
        found = {own: found[own]}
        return [Arm(own, found[own], False)]
    return [Arm(space, names, len(found) == 1) for space, names in found.items()]


def robot_name(request: Request, uri: str, arm: Arm) -> str:
    """Return an arm's name by the request, empty for that of its description.

    Raises:
        DataError: If the source of the name does not yield one.

    """
    source = request.robot_from
    name = (arm.namespace.strip('/') if source == NAMESPACE
            else name_in_path(request, uri))
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


def _marked_namespaces(bag: Bag) -> list[str]:
    """Return the namespaces in which a node of a capability has published marks."""
    found = []
    for topic, kind in bag.topics.items():
        if kind == MARKS and bag.counts[topic]:
            node, _, name = topic.rpartition('/')
            space, _, own = node.rpartition('/')
            if name == marks.TOPIC and own in registry.nodes():
                found.append(space)
    return sorted(set(found))


def _joint_namespaces(bag: Bag) -> list[str]:
    return sorted(topic.removesuffix(_JOINT_STATES) for topic, kind in bag.topics.items()
                  if kind == JOINT_STATE and topic.endswith(_JOINT_STATES))


def _is_marked(bag: Bag, namespace: str, name: str) -> bool:
    """Return whether a complete run of a capability is marked."""
    chosen = estimator(name)
    found = list(_marks(bag, f'{namespace}/{chosen.node}/{marks.TOPIC}'))
    if isinstance(chosen, Follower):
        return bool(marks.tares(found))
    return any(mark.name == marks.END and mark.service in chosen.services for mark in found)


def _marks(bag: Bag, topic: str) -> Iterator[Mark]:
    if bag.topics.get(topic) == MARKS:
        yield from marks_in(bag, topic)
