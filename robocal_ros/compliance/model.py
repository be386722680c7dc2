# SPDX-License-Identifier: Apache-2.0
"""Sag of an arm with compliant joints under gravity, and its correction.

Encoders are on the motor side: a joint that transmits the torque τ deflects by c·τ relative to its
encoder. To first order a load of weight m·g displaces the end point by
Σ a_i × (p − o_i) c_i Δτ_i with Δτ_i = a_i · ((p_load − o_i) × m g), a_i being a joint's axis and
o_i a point on it. Heavy loads change the levers, so the prediction solves for the equilibrium
posture and uses the first-order form as its derivative. Source: Dumas, Caro, Garnier, Furet, Joint
stiffness identification of six-revolute industrial serial robots, Robot. Comput.-Integr. Manuf. 27
(2011) 881, doi 10.1016/j.rcim.2011.02.003.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import compress

import numpy as np
import pinocchio as pin
import scipy

from robocal_ros.arrays import Array, frozen
from robocal_ros.compliance.measurement import Target
from robocal_ros.compliance.parameters import OF_GEOMETRY, ComplianceParameters
from robocal_ros.errors import ConfigurationError, DataError
from robocal_ros.results import CalibrationResult
from robocal_ros.robot import RigidBodyInertia, Robot, alternative_loads, carried_load, deflected

UNIT = 'rad/(N·m)'

_ACROSS = np.array([
    np.diag([1.0, 1.0, 0.0]), np.diag([1.0, -1.0, 0.0]),
    [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]])
"""Compliance across the third axis, the same in all directions, then different, (3, 3, 3)."""
_SYMMETRIC = np.array([
    np.eye(3), _ACROSS[1], np.diag([-1.0, -1.0, 2.0]) / np.sqrt(3.0), _ACROSS[2],
    [[0.0, 0.0, 1.0], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0]],
    [[0.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]]])
"""The identity, then five symmetric matrices without trace of the same kind, shape (6, 3, 3)."""
_GAUSS = 0.5 + np.array([-0.5, 0.5]) / np.sqrt(3.0)


def bending_columns(
    robot: Robot, loaded: Robot, target: Target, q: Array, rows: int = 3
) -> tuple[Array, Array]:
    """Return the displacement by the load per unit of compliance of each bearing and each link.

    A bearing that bends by C M under the moment M of the load about the joint moves the target by
    C M × lever. With e₁ and e₂ across the axis, C is b (e₁e₁ᵀ + e₂e₂ᵀ), which no rotation about
    the axis changes, and b (e₁e₁ᵀ − e₂e₂ᵀ) and b (e₁e₂ᵀ + e₂e₁ᵀ), with the directions fixed to
    the link behind the joint, then to the one before it.

    A link is a beam from its joint to the next, the last one to the tool frame, that turns by
    C M(s) ds/length under the moment about the place s. The displacement is quadratic in s, so
    that two points of Gauss with half of C each give it exactly. C is b times the identity, then
    five symmetric matrices without trace, in the axes of the joint.

    Args:
        robot: The arm without the load.
        loaded: The arm with it.
        target: Tracked target.
        q: Joint angles, shape (n,) [rad].
        rows: 3 for position, 6 for position and rotation vector.

    Returns:
        Columns of the five components of each bearing, shape (rows, n, 5), and of the six of each
        link, shape (rows, n, 6) [m·N·m/rad].

    """
    masses = [pin.computeTotalMass(arm.model) for arm in (robot, loaded)]
    first = [mass * pin.centerOfMass(arm.model, arm.data, q)
             for mass, arm in zip(masses, (robot, loaded), strict=True)]
    end = robot.transform_frame_to_root(q, robot.tool_frame).translation
    _, point, jacobian = robot.pose_and_jacobian(q, target.frame, target.xyz)
    axis = jacobian[3:].T
    places = [robot.data.oMi[robot.model.getJointId(name)] for name in robot.joint_names]
    at = np.array([place.translation for place in places])
    # A direction of each link's frame, rounded so that ties fall alike in all postures.
    across = np.array([place.rotation[:, np.abs(place.rotation.T @ a).round(6).argmin()]
                       for place, a in zip(places, axis, strict=True)])

    pulled = np.zeros((2, 3))
    if isinstance(loaded, PulledArm):
        pulled[:] = loaded.attack(q)

    def moment(about: Array) -> Array:
        return np.cross(first[1] - first[0] - (masses[1] - masses[0]) * about,
                        robot.gravity) + np.cross(pulled[0] - about, pulled[1])

    def moved(compliance: Array, about: Array) -> Array:
        """Return the columns of compliances (n, c, 3, 3) that turn about points (n, 3)."""
        turn = np.einsum('ncij,nj->nci', compliance, moment(about))
        return np.concatenate((np.cross(turn, (point - about)[:, None]), turn),
                              axis=2)[:, :, :rows].transpose(2, 0, 1)

    def turned(frames: Array, matrices: Array) -> Array:
        return frames[:, None] @ matrices @ frames[:, None].transpose(0, 1, 3, 2)

    one = np.cross(axis, across)
    one /= np.linalg.norm(one, axis=1)[:, None]
    behind = np.stack((one, np.cross(axis, one), axis), axis=2)
    before = behind @ scipy.spatial.transform.Rotation.from_euler('z', -q[:, None]).as_matrix()
    bearing = np.concatenate((turned(behind, _ACROSS), turned(before, _ACROSS[1:])), axis=1)
    beam = turned(np.array([place.rotation for place in places]), _SYMMETRIC)
    length = np.diff([*at, end], axis=0)
    near, far = (moved(0.5 * beam, at + share * length) for share in _GAUSS)
    return moved(bearing, at), near + far


@dataclass(frozen=True)
class Pull:
    """Rope between the load and a pulley, which a weight keeps tight.

    Attributes:
        force: Its tension [N].
        std: Standard deviation of the tension [N].
        frame: Frame to which its end on the load is fixed.
        point: That end in ``frame``, shape (3,) [m].
        towards: Point of the pulley, root frame, shape (3,) [m].

    """

    force: float
    std: float
    frame: str
    point: Array
    towards: Array


class PulledArm(Robot):
    """Arm with a rope on its load, which counts among the torques that hold it.

    Attributes:
        pull: The rope.

    """

    pull: Pull

    @classmethod
    def of(cls, robot: Robot, pull: Pull) -> PulledArm:
        """Return an arm with a rope; both share the model."""
        twin = cls.__new__(cls)
        twin.__dict__.update(robot.__dict__, pull=pull)
        return twin

    def copy(self) -> Robot:
        """Return a copy with its own Pinocchio model and data, for use in another thread."""
        return self.of(super().copy(), self.pull)

    def attack(self, q: Array) -> tuple[Array, Array]:
        """Return end [m] and force [N] of the rope, root axes, shapes (3,)."""
        point = self.transform_frame_to_root(q, self.pull.frame).act(self.pull.point)
        rope = self.pull.towards - point
        return point, self.pull.force * rope / np.linalg.norm(rope)

    def _held(self, q: Array) -> Array:
        """Return the torques that hold the arm against the rope, shape (n,) [N·m]."""
        _, force = self.attack(q)
        _, _, jacobian = self.pose_and_jacobian(q, self.pull.frame, self.pull.point)
        return np.asarray(-jacobian[:3].T @ force)

    def gravity_torque(self, q: Array) -> Array:
        """Return the torques that hold the arm against gravity and the rope, shape (n,) [N·m]."""
        return super().gravity_torque(q) + self._held(q)

    def inverse_dynamics(self, q: Array, v: Array, a: Array) -> Array:
        """Return the joint torques of a motion against the rope, shape (n,) [N·m]."""
        return super().inverse_dynamics(q, v, a) + self._held(q)


def predicted(
    robot: Robot, loaded: Robot, target: Target, without: Array, with_load: Array,
    compliance: Array, rows: int = 3,
) -> tuple[Array, Array]:
    """Return the displacement caused by the load, and its derivative.

    Args:
        robot: The arm without the load.
        loaded: The arm with it.
        target: Tracked target.
        without: Encoder angles without the load, shape (n,) [rad].
        with_load: Encoder angles with it, shape (n,) [rad].
        compliance: Shape (n,) [rad/(N·m)].
        rows: 3 for position, 6 for position [m] and rotation vector [rad].

    Returns:
        Displacement in root axes, shape (rows,), and its derivative with respect to the
        compliances, to first order, shape (rows, n).

    """
    q0, torque0 = deflected(robot.gravity_torque, without, compliance)
    q1, torque1 = deflected(loaded.gravity_torque, with_load, compliance)
    turn0, point0, jacobian0 = robot.pose_and_jacobian(q0, target.frame, target.xyz)
    turn1, point1, jacobian1 = robot.pose_and_jacobian(q1, target.frame, target.xyz)
    slope, change = (jacobian0 * torque0 - jacobian1 * torque1)[:rows], point1 - point0
    if rows == 6:
        change = np.concatenate((change, pin.log3(turn1 @ turn0.T)))
    return change, slope


@dataclass(frozen=True)
class Load:
    """Load mounted between the two sets.

    Attributes:
        body: Mass, centre of mass and inertia in ``frame``.
        frame: Frame to which it is fixed.
        alternatives: Bodies displaced by one standard deviation along independent directions;
            empty for a load known exactly.
        source: Origin of the numbers, in words.
        pull: Rope that pulls on the load; None without one.
        centred: Whether the centre of mass is known within the alternatives; if not, it is to be
            estimated.

    """

    body: RigidBodyInertia
    frame: str
    alternatives: tuple[RigidBodyInertia, ...] = ()
    source: str = 'load_mass'
    pull: Pull | None = None
    centred: bool = True

    def __post_init__(self) -> None:
        """Raise a DataError if mass or centre of mass is not physical."""
        numbers = [self.body.mass, *self.body.com]
        if not np.isfinite(numbers).all():
            raise DataError(
                f'The load ({self.source}) has mass {self.body.mass} kg and centre '
                f'{np.asarray(self.body.com).tolist()} m; expected finite numbers.')
        if self.body.mass <= 0.0:
            raise DataError(
                f'The mass of the load ({self.source}) is {self.body.mass:g} kg; expected more '
                'than 0. Set load_mass and load_com, or identify the payload first.')

    def on(self, robot: Robot) -> Robot:
        """Return the arm with the load on it."""
        loaded = robot.with_payload(self.body, self.frame)
        return loaded if self.pull is None else PulledArm.of(loaded, self.pull)

    def moved(self, by: Array) -> Load:
        """Return the load with its centre moved by a vector, shape (3,) [m]."""
        return replace(self, body=replace(self.body, com=frozen(self.body.com + by)))

    def described(self) -> str:
        """Return mass, frame and origin in words."""
        rope = '' if self.pull is None else (
            f', pulled by {self.pull.force:.4g} N towards {self.pull.towards.tolist()} m')
        return f'{self.body.mass:.3g} kg on {self.frame} ({self.source}){rope}'

    def others(self) -> list[Load]:
        """Return loads that are each displaced by one standard deviation."""
        others = [replace(self, body=body) for body in self.alternatives]
        if self.pull is not None and self.pull.std > 0.0:
            others.append(replace(self, pull=replace(
                self.pull, force=self.pull.force + self.pull.std)))
        return others


def given_load(
    mass: float, com: Sequence[float], frame: str, *, mass_std: float = 0.0,
    com_std: float | None = 0.0,
) -> Load:
    """Return a load of given mass and centre.

    Args:
        mass: Mass [kg].
        com: Centre of mass in ``frame``, shape (3,) [m].
        frame: Frame to which it is fixed.
        mass_std: Standard deviation of the mass [kg].
        com_std: Standard deviation of each coordinate of the centre; None: to be estimated [m].

    Raises:
        DataError: If the mass is not positive or a number is not finite.

    """
    centre: Array = frozen(com)
    point = np.zeros((3, 3))
    others = [RigidBodyInertia(mass + mass_std, centre, point)] if mass_std > 0.0 else []
    if com_std is not None and com_std > 0.0:
        others += [RigidBodyInertia(mass, frozen(centre + com_std * axis), point)
                   for axis in np.eye(3)]
    return Load(RigidBodyInertia(mass, centre, point), frame, tuple(others),
                centred=com_std is not None)


def identified_load(result: CalibrationResult) -> Load:
    """Return the load of a payload result with its uncertainty.

    Raises:
        DataError: If the result is not a payload, lacks mass or centre, or is not physical.

    """
    return Load(carried_load(result), result.frame, tuple(alternative_loads(result)),
                'payload result')


@dataclass(frozen=True)
class Mounted:
    """Bodies on the arm in both sets.

    Attributes:
        load: Load mounted between the sets; None while it is unknown.
        tool: Body that stays mounted in both sets; None without one.
        note: Role of the payload result, as a sentence.

    """

    load: Load | None
    tool: Load | None = None
    note: str = ''

    def known_load(self) -> Load:
        """Return the load; raises DataError if it is unknown."""
        if self.load is None:
            raise DataError(
                'The mass of the load is unknown: load_mass is 0, and no payload result describes '
                f'the load. {self.note} Set load_mass and load_com, or identify the load with '
                'payload_identification.')
        return self.load

    def on(self, robot: Robot, *, loaded: bool) -> Robot:
        """Return the arm in the unloaded or the loaded set; raises as ``known_load``."""
        carrying = robot.copy() if self.tool is None else self.tool.on(robot)
        return self.known_load().on(carrying) if loaded else carrying

    def others_on(self, robot: Robot, *, loaded: bool) -> list[Robot]:
        """Return the arm with the tool, then the load, displaced by one standard deviation each.

        Raises as ``known_load``.
        """
        others = [replace(self, tool=body) for body in (self.tool.others() if self.tool else ())]
        others += [replace(self, load=body) for body in (self.load.others() if self.load else ())]
        return [other.on(robot, loaded=loaded) for other in others]

    def described(self, *, loaded: bool) -> str:
        """Return the bodies of the unloaded or the loaded set in words."""
        bodies = [] if self.tool is None else [f'a tool of {self.tool.described()}']
        bodies += [f'a load of {self.known_load().described()}'] if loaded else []
        return ' and '.join(bodies) or 'nothing'


# Masses of payload result and load that are this close may be the same body.
_SAME_BODY = 0.1


def mounted_of(
    robot: Robot, values: ComplianceParameters, payload: CalibrationResult | None
) -> Mounted:
    """Return what is mounted in both sets.

    Raises:
        DataError: If the payload result is not usable, missing where a parameter requires it, or
            may be the load itself although ``load_mass`` is set.

    """
    role, given = values.payload_is, values.load_mass > 0.0
    if payload is None or role == 'unused':
        if payload is None and role in ('tool', 'load'):
            raise DataError(
                f"payload_is is '{role}', but there is no payload result. Identify the {role} "
                "with payload_identification, or set payload_is to 'auto'.")
        known, note = None, ('There is no payload result: no tool is assumed.' if payload is None
                             else "The payload result is not used (payload_is is 'unused').")
    else:
        known = identified_load(payload)
        if role == 'auto' and given and abs(
                known.body.mass - values.load_mass) < _SAME_BODY * values.load_mass:
            raise DataError(
                f'The payload result of {known.body.mass:.3g} kg and load_mass of '
                f'{values.load_mass:.3g} kg may be the same body. '
                "Set payload_is to 'tool' if both are mounted in the loaded set, to 'unused' if "
                'the load alone is; or set load_mass to 0 to use the payload result as the load.')
        if role == 'auto':
            role = 'tool' if given or values.method == OF_GEOMETRY else 'load'
        note = f"The payload result is the {role} (payload_is is '{values.payload_is}')."
    load = known if role == 'load' else None
    if given:
        load = given_load(
            values.load_mass, values.load_com, values.load_frame or robot.tool_frame,
            mass_std=values.load_mass_std, com_std=values.load_com_std or None)
    if load is not None and values.pull_force > 0.0:
        load = replace(load, pull=Pull(
            values.pull_force, values.pull_force_std, values.load_frame or robot.tool_frame,
            np.array(values.pull_point), np.array(values.pull_towards)))
    return Mounted(load, known if role == 'tool' else None, note)


def carried_on(
    robot: Robot, values: ComplianceParameters, payload: CalibrationResult | None
) -> tuple[Robot, str]:
    """Return the arm with what deflection and trajectory correction assume, and that in words.

    Raises:
        DataError: If a payload result is not usable.

    """
    if values.carried in ('auto', 'payload') and payload is not None:
        known = identified_load(payload)
        return known.on(robot), f'the payload result of {known.described()}'
    # A stored result that is wanted is read later than the parameters.
    wanting = payload is None and values.payload_is in ('tool', 'load')
    if values.carried in ('auto', 'load') and not wanting:
        mounted = mounted_of(robot, values, payload)
        if mounted.load is not None:
            # The rope is part of the procedure alone.
            carried = replace(mounted, load=replace(mounted.load, pull=None))
            return carried.on(robot, loaded=True), carried.described(loaded=True)
    return robot, 'no payload'


def check_arm(robot: Robot, values: ComplianceParameters) -> None:
    """Raise a ConfigurationError if the arm lacks a frame or has a prismatic joint."""
    for name in compress(robot.joint_names, robot.prismatic):
        raise ConfigurationError(
            f"Joint '{name}' is prismatic; compliance is identified for revolute joints only, in "
            'rad/(N·m). Remove it from the parameter joints.')
    for frame in (values.target_frame, values.load_frame):
        robot.frame_id(frame or robot.tool_frame)


def kinds(values: ComplianceParameters) -> tuple[str, ...]:
    """Return the kinds of results that an estimate uses."""
    return () if values.payload_is == 'unused' else ('payload',)
