# SPDX-License-Identifier: Apache-2.0
"""Estimation from a bag, without a robot and without ROS: parameter files, then one reading."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from robocal_ros.errors import ConfigurationError, FileFormatError, nearest_name
from robocal_ros.estimators import Estimator
from robocal_ros.files import load, read_text
from robocal_ros.messages import (
    JOINT_STATE,
    MARKS,
    POINT,
    POSE,
    TEMPERATURE,
    WRENCH,
    Bag,
    Intake,
    JointIntake,
    Recording,
    Selection,
    TrackerIntake,
    WrenchIntake,
    marks,
    marks_in,
    temperature_intake,
)
from robocal_ros.parameters import (
    ParameterTable,
    checked,
    declarations,
    given_value,
    with_numbers,
)
from robocal_ros.results import CalibrationResult, Load, ResultStore, read_result
from robocal_ros.robot import Robot, make_robot, make_store, torque_factor, with_own_units

__all__ = ['OfflineEstimation', 'read_parameters', 'results_for']

T = TypeVar('T', bound=ParameterTable)

_SECTION = 'ros__parameters'


@dataclass(frozen=True)
class BagOutcome:
    """A result and remarks on the data that it was estimated from."""

    result: CalibrationResult
    remarks: tuple[str, ...]


class OfflineEstimation:
    """Estimation of one capability from one bag; the inputs are checked on construction."""

    def __init__(
        self, capability: Estimator, bag: Bag, values: Any, urdf: str, selection: Selection,
        files: Sequence[Path] = (),
    ) -> None:
        """Check that parameters, robot, results and bag fit each other.

        Args:
            capability: The capability.
            bag: The bag.
            values: The node's parameters.
            urdf: URDF text.
            selection: Messages to use.
            files: Result files to use instead of stored results of the same kinds.

        Raises:
            RobocalError: If parameters, robot, results and bag do not fit each other.

        """
        self._capability = capability
        self._bag = bag
        self._selection = selection
        self._spans, self._remarks = self._marked()
        if self._spans.method not in ('', getattr(values, 'method', '')):
            values = replace(values, method=self._spans.method)
            self._remarks = (*self._remarks, f'Its method is {values.method}, which is used.')
        self._values = values
        self.robot = make_robot(urdf, values)
        self.store, current = results_for(self.robot, values, files)
        self._inputs = capability.inputs(self.robot, values, current)
        needs, name = capability.needs(values), bag.name
        self._joints = JointIntake(
            self.robot, torque_factor(self.robot, values, self._inputs.gains),
            need_effort=needs.effort, source=name, span=self._span(marks.JOINTS),
            budget=needs.budget, stationary=self._stationary())
        for need in needs.wrenches:
            self.robot.frame_id(need.frame)
        self._wrenches = {need.topic: WrenchIntake(
            need.topic, need.frame, need.sign, need.message_frame, source=name,
            span=self._span(need.topic), budget=needs.budget) for need in needs.wrenches}
        self._temperature = temperature_intake(
            needs.temperature_topic, source=name, span=self._span(marks.JOINTS))
        streams: list[tuple[str, str, Intake]] = [
            ('joint_states', JOINT_STATE, self._joints),
            *((topic, WRENCH, intake) for topic, intake in self._wrenches.items())]
        self._tracker: TrackerIntake | None = None
        if (tracker := needs.tracker) is not None:
            self._tracker = TrackerIntake(
                tracker.topic, orientation=tracker.orientation, source=name,
                span=self._span(tracker.topic), stationary=self._stationary())
            streams.append((tracker.topic, POSE if tracker.orientation else POINT, self._tracker))
        if needs.temperature_topic:
            streams.append((needs.temperature_topic, TEMPERATURE, self._temperature))
        self._intakes = {selection.topic(bag, topic, kind): (topic, intake)
                         for topic, kind, intake in streams}

    @property
    def messages(self) -> int:
        """Number of messages to be read."""
        return sum(self._bag.counts[topic] for topic in self._intakes)

    def run(
        self, progress: Callable[[int], None] | None = None,
        estimating: Callable[[], None] = lambda: None,
    ) -> BagOutcome:
        """Read the bag and estimate.

        Args:
            progress: Called from time to time with the number of messages read so far.
            estimating: Called when all are read.

        Raises:
            RobocalError: If bag or data are unsuitable.

        """
        self._bag.read(
            {topic: intake.take for topic, (_, intake) in self._intakes.items()}, progress)
        recording = Recording(
            self._joints.bag_samples(),
            {name: intake.bag_samples() for name, intake in self._wrenches.items()},
            self._temperature.samples(), self._spans.joints_wanted,
            None if self._tracker is None else self._tracker.bag_samples(), self._stationary())
        estimating()
        result = self._capability.result(self.robot, recording, self._values, self._inputs)
        return BagOutcome(with_own_units(self.robot, result), (*self._remarks, *self._messages()))

    def stored(self, result: CalibrationResult) -> Path:
        """Store a result for later estimations as the node would; return its file."""
        merge = self._capability.merge
        merged = None if merge is None else merge(self.store.load(result.kind), result)
        return self.store.save(result if merged is None else merged)

    # ------------------------------------------------------------------------ marks

    def _marked(self) -> tuple[marks.Spans, tuple[str, ...]]:
        """Return the spans of the last run marked in the bag, and a remark about it."""
        name = f'{self._capability.node}/{marks.TOPIC}'
        topic = self._selection.known_topic(self._bag, name, MARKS)
        spans = None if self._selection.whole or topic is None else marks.last_run(
            marks_in(self._bag, topic), self._capability.services)
        if spans is None:
            return marks.Spans(), ()
        return spans, ('The last run marked in the bag is used; --whole uses the whole bag.',)

    def _span(self, stream: str) -> marks.Span:
        marked = self._spans.of(stream)
        return marks.Span(max(marked.begin, self._selection.begin),
                    min(marked.end, self._selection.end), marked.discarded)

    def _stationary(self) -> tuple[marks.StationaryInterval, ...]:
        """Return the marked stationary intervals within the selected time."""
        span = self._span(marks.JOINTS)
        return tuple(rest for rest in self._spans.stationary
                     if span.begin < rest.begin and rest.end <= span.end)

    def _messages(self) -> Iterator[str]:
        for name, intake in self._intakes.values():
            averaged, forgotten = intake.record.averaged, intake.record.forgotten
            if averaged > 1:
                yield (f'{intake.recorded} messages of {name} are more than needed: groups of '
                       f'{averaged} neighbours were averaged.')
            if forgotten:
                what = 'averages' if averaged > 1 else 'readings'
                yield (f'The bag exceeds the sample budget: the oldest {forgotten} {what} '
                       f'of {name} were left out. Select a part with --from and --to.')


def results_for(robot: Robot, values: Any, files: Sequence[Path]) -> tuple[ResultStore, Load]:
    """Return the stored results, and what loads the current ones: of files, else the stored."""
    store = make_store(robot, values)
    given = {result.kind: result for result in (
        read_result(file, store.robot, passed=True) for file in files)}
    return store, lambda kind: given[kind] if kind in given else store.load(kind)


# ---------------------------------------------------------------------- parameter files


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
        document = load(read_text(file, 'parameter file'), str(file))
        if not isinstance(document, dict):
            raise FileFormatError(
                f"'{file}' is not a parameter file: expected '<node>:' and '{_SECTION}:' below "
                'it.')
        values |= _of_node(document, f'/{namespace.strip("/")}/{node}'.replace('//', '/'),
                           str(file))
    known = {item.name: item for item in declarations(table)}
    for name, text in (overrides or {}).items():
        if name not in known:
            raise ConfigurationError(
                f"'{name}' is not a parameter of {node}{nearest_name(name, known)}; "
                f'expected one of {", ".join(known)}.')
        is_text = known[name].element_type is str and not isinstance(known[name].default, list)
        values[name] = text if is_text else given_value(name, text)
    values = {name: with_numbers(value) if known[name].element_type is float else value
              for name, value in values.items() if name in known}
    problems = [f"Parameter '{name}' is {value!r}; it must be {known[name].type_text()}."
                for name, value in values.items() if not known[name].fits(value)]
    if problems:
        raise ConfigurationError(' '.join(problems))
    return checked(table, values)



def _of_node(document: Mapping[Any, Any], node: str, file: str, at: str = '') -> dict[str, Any]:
    """Return a file's parameters of a node; names, wildcards and namespaces may be nested."""
    found: dict[str, Any] = {}
    for key, value in document.items():
        if not isinstance(value, dict):
            raise FileFormatError(
                f"{file}, key '{key}': expected a mapping that leads to '{_SECTION}', got "
                f'{value!r}.')
        if key == _SECTION:
            # ** is any namespaces, * is one.
            form = ''.join(
                r'(/[^/]+)*' if part == '**' else '/' + re.escape(part).replace(r'\*', '[^/]*')
                for part in at.strip('/').split('/'))
            if re.fullmatch(form, node):
                found |= _flat(value)
        else:
            found |= _of_node(value, node, file, f'{at}/{str(key).strip("/")}')
    return found


def _flat(values: Mapping[Any, Any], prefix: str = '') -> dict[str, Any]:
    """Return nested parameters by names with dots."""
    return {name: found for key, value in values.items() for name, found in (
        _flat(value, f'{prefix}{key}.') if isinstance(value, dict)
        else {f'{prefix}{key}': value}).items()}
