# SPDX-License-Identifier: Apache-2.0
"""Declaration of every capability: the one place that lists them.

Executables, launch files, command line, recorder, followed topics, parameter files and the pages
generated from them go by this list; ``setup.py``, security policies, displays and docs are tested
against it. Nothing here imports ROS or numerical libraries, so that ``robocal --help`` is fast.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Procedure:
    """What one service of a node measures or does, by its name on the command line.

    Attributes:
        name: Name for ``robocal run``, and for ``robocal estimate`` if it has an estimator.
        verb: Service of the node that carries it out; empty for an estimate from files alone.
        kind: Kind of its result, empty for none.
        topic: Topic of the node on which the result is published.
        estimator: Module and name of its estimator from bags or files, empty for none.
        urdf: Suffix of the URDF into which ``robocal apply`` writes the result, empty for none.
        then: What to do once the result has passed, and the command, if it is not applied.
        node: Name of the node; set by ``procedures``.

    """

    name: str
    verb: str = 'run'
    kind: str = ''
    topic: str = 'result'
    estimator: str = ''
    urdf: str = ''
    then: tuple[str, str] = ('The nodes use it from now on; nothing is to be done.', '')
    node: str = ''


@dataclass(frozen=True)
class Capability:
    """One node and what it is good for.

    Attributes:
        node: Name of the node and of its executable.
        package: Package of its modules, of which ``node`` holds the node; its last part is the
            name of its page of the documentation, too.
        procedures: What it can measure or do, the most important first.
        own_kinds: Kinds of further results, which only the capability itself uses.

    """

    node: str
    package: str
    procedures: tuple[Procedure, ...]
    own_kinds: tuple[str, ...] = ()

    @property
    def results(self) -> dict[str, str]:
        """Topics of the published results, relative to the namespace, by kind."""
        return {item.kind: f'{self.node}/{item.topic}' for item in self.procedures
                if item.kind and item.verb}

    @property
    def recorded(self) -> tuple[str, ...]:
        """Topics that a bag needs besides those of the robot, relative to the namespace."""
        return (f'{self.node}/marks', *self.results.values()) if self.results else ()


_CAPABILITIES = (
    Capability('payload_identification', 'robocal_ros.payload', (
        Procedure('payload', kind='payload', estimator='robocal_ros.payload.estimator:PAYLOAD',
                  urdf='with_tool'),
        Procedure(
            'drive_gains', 'calibrate_gains', 'drive_gains', 'drive_gains',
            'robocal_ros.payload.estimator:GAINS',
            then=('Efforts are converted to N·m from now on. Identify what depends on them, such '
                  'as the payload.', 'robocal run payload')),
        Procedure('arm', 'identify_arm', 'arm', 'arm',
                  'robocal_ros.payload.estimator:ARM_IDENTIFICATION', urdf='identified'),
        Procedure(
            'sensor_calibration', 'calibrate_sensor', 'sensor_calibration', 'sensor_calibration',
            'robocal_ros.payload.estimator:SENSOR',
            then=('The observer corrects the readings of this sensor from now on.', ''))),
        ('payload_reference',)),
    Capability('friction_identification', 'robocal_ros.friction', (
        Procedure('friction', kind='friction',
                  estimator='robocal_ros.friction.estimator:FRICTION', urdf='with_friction'),)),
    Capability('compliance_calibration', 'robocal_ros.compliance', (
        Procedure(
            'compliance', kind='compliance',
            estimator='robocal_ros.compliance.estimator:COMPLIANCE',
            then=('Leveling corrects the sag of the joints from now on.',
                  'robocal run leveling')),
        Procedure('geometry', '', 'geometry', 'geometry',
                  'robocal_ros.compliance.geometry_estimator:GEOMETRY', urdf='calibrated'))),
    Capability('wrench_observer', 'robocal_ros.wrench', (
        # The tare; from a bag, external wrenches too.
        Procedure('wrench', 'tare', 'tare', estimator='robocal_ros.wrench.bag:FOLLOWER'),
        Procedure('torque_zero', 'zero', 'torque_zero', 'torque_zero'))),
    Capability('leveling', 'robocal_ros.leveling', (Procedure('leveling'),)),
)


def capabilities() -> tuple[Capability, ...]:
    """Return all capabilities, in the order in which they are listed to users."""
    return _CAPABILITIES


def nodes() -> dict[str, str]:
    """Return the modules of the nodes by the names of their executables."""
    return {item.node: f'{item.package}.node' for item in _CAPABILITIES}


def of_node(name: str) -> Capability:
    """Return the capability of a node."""
    return next(item for item in _CAPABILITIES if item.node == name)


def procedures() -> dict[str, Procedure]:
    """Return all procedures by name."""
    return {item.name: replace(item, node=capability.node)
            for capability in _CAPABILITIES for item in capability.procedures}


def result_topics() -> dict[str, str]:
    """Return the topics of all published results, relative to the namespace, by kind."""
    return {kind: topic for item in _CAPABILITIES for kind, topic in item.results.items()}


def estimators() -> dict[str, str]:
    """Return module and name of everything that estimates from bags, by procedure."""
    return {name: item.estimator for name, item in procedures().items()
            if item.estimator and item.verb}


def file_estimators() -> dict[str, str]:
    """Return module and name of everything that estimates from files, by procedure."""
    return {name: item.estimator for name, item in procedures().items() if not item.verb}


def of_kind(kind: str) -> Procedure | None:
    """Return the procedure with results of a kind, None for an unknown kind."""
    return next((item for item in procedures().values() if item.kind == kind), None)
