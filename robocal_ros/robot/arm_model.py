# SPDX-License-Identifier: Apache-2.0
"""Dynamic parameters of the arm, their covariance, and what is linear in them.

Parameters are from the URDF or from an identification; regressors and inverse dynamics of the arm
and of a body on it are by Pinocchio.

The parameter vector has 13 n entries: ten inertial parameters of each link (in Pinocchio's order,
in the frame of the link's joint, with everything fixed to the link), then n rotor inertias
reflected to the joints, then n relative errors of the drive gains, then n torques per joint angle
of hoses and springs. Estimators from joint torques propagate its covariance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pinocchio as pin
import scipy

from robocal_ros.arrays import Array, covariance_factor, frozen
from robocal_ros.errors import DataError
from robocal_ros.parameters import RobotParameters
from robocal_ros.results import CalibrationResult
from robocal_ros.robot.model import RigidBodyInertia, Robot
from robocal_ros.robot.setup import ARM, EFFORT_UNITS

GRAVITY = ('gravity_x', 'gravity_y', 'gravity_z')
"""Parameters of an arm whose base leans: gravity in its root frame [m/s²]."""

LINK = ('mass', 'moment_x', 'moment_y', 'moment_z',
        'inertia_xx', 'inertia_xy', 'inertia_yy', 'inertia_xz', 'inertia_yz', 'inertia_zz')
"""Inertial parameters of a link, in which torques are linear; inertia about the joint's origin."""

LINK_UNITS = ('kg', *['kg·m'] * 3, *['kg·m²'] * 6)

# Least radius of gyration [m] and mass [kg] of a link: URDFs contain placeholders without extent
# or mass, for which a relative uncertainty would be none.
_LEAST_EXTENT = 0.02
_LEAST_MASS = 0.05
# Distance from the centre of a hand to parts mounted on its outside [m].
_MOUNTED_OUTSIDE = 0.08
# Prior mean of the reflected rotor inertia, as a share of the joint's largest inertia by the URDF,
# which counts as at least a share of the first joint's.
_ROTOR_SHARE = 0.3
_ROTOR_FLOOR = 0.03
# Postures among which the inertia is largest.
_POSTURES = 64
ROTOR_SPREAD = 3.0
"""Prior standard deviation of rotor inertias, in multiples of ``expected_rotors``."""

URDF_FREEDOM = 5.0
"""Degrees of freedom of the standard deviation of links by the URDF: it is known to a factor of
about two either way, as masses and centres of real arms are 3 to 10 % off."""

PSEUDO_INERTIA = np.array([
    pin.PseudoInertia.FromDynamicParameters(unit).toMatrix() for unit in np.eye(10)])
"""Pseudo-inertia matrix of each unit parameter, shape (10, 4, 4). That of a body is their linear
combination, positive definite for every physically consistent body (Wensing, Kim, Slotine, IEEE
RA-L 3 (2018) 60, doi 10.1109/LRA.2017.2729659)."""


def pseudo_inertia(parameters: Array) -> Array:
    """Return the pseudo-inertia matrices of bodies, shape (…, 4, 4).

    Args:
        parameters: ``LINK`` parameters, shape (…, 10).

    """
    return np.asarray(np.tensordot(parameters, PSEUDO_INERTIA, axes=1))


def link_parameters(robot: Robot) -> Array:
    """Return the inertial parameters of all links by the model, shape (n, 10)."""
    return np.array([inertia.toDynamicParameters() for inertia in robot.model.inertias[1:]])


def physically_consistent(parameters: Array) -> Array:
    """Return bodies with mass and extent raised to the least ones, shape (n, 10).

    Args:
        parameters: ``LINK`` parameters, shape (n, 10).

    """
    bodies = []
    for matrix in pseudo_inertia(parameters):
        mass = max(float(matrix[3, 3]), _LEAST_MASS)
        com = matrix[:3, 3] / mass
        second = matrix[:3, :3] - mass * np.outer(com, com)
        values, axes = np.linalg.eigh(0.5 * (second + second.T))
        second = (axes * np.maximum(values, mass * _LEAST_EXTENT**2 / 3.0)) @ axes.T
        bodies.append(pin.Inertia(
            mass, com, np.trace(second) * np.eye(3) - second).toDynamicParameters())
    return np.array(bodies)


def link_covariance(parameters: Array, std: float) -> Array:
    """Return the covariance of a link's parameters by the URDF, shape (10, 10).

    Its inverse is the metric of the positive definite pseudo-inertia matrices at the URDF's body
    (Lee, Wensing, Park, Geometric Robot Dynamic Identification, IEEE Trans. Robot. 36 (2020) 348,
    doi 10.1109/TRO.2019.2926491), scaled to the standard deviation of the mass. That of the centre
    of mass is then ``std``/√2 times the link's extent, independent of units and frames. Parts that
    URDFs lack (cables, covers, adapters, fingertips) add a share ``std`` of the mass on the
    outside.

    Args:
        parameters: ``LINK`` parameters of a physically consistent body, shape (10,).
        std: Standard deviation of the mass, as a share of it.

    """
    changes = np.linalg.inv(pseudo_inertia(parameters)) @ PSEUDO_INERTIA
    covariance = np.linalg.inv(np.einsum('kab,lba->kl', changes, changes) / std**2)
    covariance[1:4, 1:4] += (std * parameters[0] * _MOUNTED_OUTSIDE) ** 2 * np.eye(3)
    return np.asarray(covariance)


def body_covariance(body: RigidBodyInertia, std: float) -> Array:
    """Return the covariance of the URDF's tool or hand, shape (10, 10); zero without one.

    Args:
        body: The body.
        std: Standard deviation of the mass, as a share of it.

    """
    if body.mass <= 0.0 or std <= 0.0:
        return np.zeros((10, 10))
    return link_covariance(
        physically_consistent(body.to_pinocchio().toDynamicParameters()[None])[0], std)


def links_covariance(robot: Robot, std: float) -> Array:
    """Return the covariance of all links' parameters by the URDF, shape (10 n, 10 n).

    Args:
        robot: The arm.
        std: Standard deviation of the links' masses, as a share of them: of each by itself, and of
            all by a common factor. Makers' URDFs are off by about as much as a whole as their
            links are among each other.

    """
    bodies = physically_consistent(link_parameters(robot))
    if std <= 0.0:
        return np.zeros(2 * (bodies.size,))
    common = std * bodies.ravel()
    return np.asarray(scipy.linalg.block_diag(
        *(link_covariance(body, std) for body in bodies)) + np.outer(common, common))


@dataclass(frozen=True)
class ArmModel:
    """The arm's own dynamics and their covariance.

    Attributes:
        robot: The arm, with the best known parameters.
        covariance: Covariance of links, rotor inertias, relative gains and springs, shape
            (13 n, 13 n).
        source: Source of the parameters, as text.
        evidence: Whether they, or at least the drive gains, were identified on this arm.
        one_motion: Whether links and drive gains were found together in a single motion.

    """

    robot: Robot
    covariance: Array
    source: str
    evidence: bool
    one_motion: bool = False

    def without_gains(self) -> ArmModel:
        """Return the same model with exact drive gains."""
        return self._with_exact(gains=True)

    def gains_alone(self) -> ArmModel:
        """Return the drive gains alone, all else exact."""
        return self._with_exact(gains=False)

    def _with_exact(self, *, gains: bool) -> ArmModel:
        rows = np.isin(np.arange(len(self.covariance)), np.r_[self._gains]) == gains
        covariance = self.covariance.copy()
        covariance[rows] = covariance[:, rows] = 0.0
        return replace(self, covariance=covariance)

    @property
    def _gains(self) -> slice:
        return slice(11 * self.robot.n, 12 * self.robot.n)

    def factor(self) -> tuple[Array, Array]:
        """Return changes of one standard deviation along independent directions.

        Returns:
            Those of the gains, with what is known to change with them, shape (13 n, r), and those
            of all others at given gains, shape (13 n, s).

        """
        gains = self._gains
        own = covariance_factor(self.covariance[gains, gains])
        along = self.covariance[:, gains] @ np.linalg.pinv(own).T
        along[gains] = own
        others = np.delete(np.arange(len(along)), gains)
        left = covariance_factor((self.covariance - along @ along.T)[np.ix_(others, others)])
        spread = np.zeros((len(along), left.shape[1]))
        spread[others] = left
        return along, spread

    def uncertain_torques(self, q: Array, v: Array, a: Array, torque: Array) -> Array:
        """Return the torques of the changes that ``factor`` returns, those of the gains first.

        Args:
            q: Joint angles, shape (k, n) [rad].
            v: Joint velocities, shape (k, n) [rad/s].
            a: Joint accelerations, shape (k, n) [rad/s²].
            torque: Total torques, to which gain errors are proportional, shape (k, n) [N·m].

        Returns:
            Shape (k, n, r) [N·m].

        """
        factor, n = np.hstack(self.factor()), self.robot.n
        columns = np.asarray(
            arm_regressor(self.robot, q, v, a).reshape(-1, 10 * n) @ factor[:10 * n])
        columns = columns.reshape(len(q), n, -1)
        columns += a[:, :, None] * factor[10 * n:11 * n]
        columns += torque[:, :, None] * factor[self._gains]
        columns += (q - self.robot.springs[1])[:, :, None] * factor[12 * n:]
        return columns


def expected_rotors(robot: Robot) -> Array:
    """Return the expected magnitude of the reflected rotor inertias, shape (n,) [kg·m²].

    Gear ratios are chosen for rotor inertias comparable to the moved inertia (inertia matching),
    the largest of any posture; for a wrist, the moved inertia includes its largest payload, a
    share of its neighbour's.
    """
    low, high = robot.sampling_limits()
    postures = low + (high - low) * scipy.stats.qmc.Halton(
        robot.n, scramble=False).random(_POSTURES)
    inertia = np.max([np.diag(pin.crba(robot.model, robot.data, q)) for q in postures], axis=0)
    largest = np.maximum.accumulate(inertia[::-1])[::-1]
    return _ROTOR_SHARE * np.maximum(largest, _ROTOR_FLOOR * float(largest[0]))


def urdf_model(
    robot: Robot, model_std: float, gain_covariance: Array, *, calibrated: bool = False
) -> ArmModel:
    """Return the arm by its URDF, with prior uncertainty.

    Args:
        robot: The arm.
        model_std: As for ``links_covariance``.
        gain_covariance: Covariance of the relative errors of the drive gains, shape (n, n).
        calibrated: Whether the drive gains are calibrated.

    """
    covariance = scipy.linalg.block_diag(
        links_covariance(robot, model_std),
        np.diag((ROTOR_SPREAD * expected_rotors(robot))**2), gain_covariance,
        np.zeros((robot.n, robot.n)))
    return ArmModel(robot, covariance, f'URDF, masses ±{100.0 * model_std:.0f} %', calibrated)


def parameter_names(joint_names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the 12 n parameters in results."""
    return (*(f'{joint}.{name}' for joint in joint_names for name in LINK),
            *(f'{joint}.rotor_inertia' for joint in joint_names),
            *(f'{joint}.effort_scale' for joint in joint_names))


def spring_names(joint_names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the n torques per joint angle in results."""
    return tuple(f'{joint}.spring' for joint in joint_names)


def identified_model(robot: Robot, result: CalibrationResult, gain_std: float = 0.0) -> ArmModel:
    """Return the identified arm, or that of the motion behind drive gains.

    Args:
        robot: The arm by its URDF.
        result: Result of an arm identification, or drive gains with links.
        gain_std: Standard deviation of the gains of joints that have none there.

    Raises:
        DataError: If the result is of another kind, or holds no covariance.

    """
    result.check_kind(*EFFORT_UNITS)
    n, names = robot.n, parameter_names(robot.joint_names)
    together = result.kind != ARM
    if not {*names[:11 * n if together else 12 * n]} <= {*result.covariance_names}:
        raise DataError('The result of the arm identification has no covariance of its '
                        'parameters; identify the arm again.')
    parameters, covariance = np.zeros(13 * n), np.zeros((13 * n, 13 * n))
    # Efforts are divided by the identified scales before they are used.
    at = slice(11 * n, 12 * n)
    parameters[at], covariance[at, at] = 1.0, gain_std**2 * np.eye(n)
    known = [(place, name) for place, name in enumerate(
        (*names, *spring_names(robot.joint_names))) if name in result.covariance_names]
    places, own = [place for place, _ in known], [name for _, name in known]
    parameters[places], covariance[np.ix_(places, places)] = (
        result.values(own), result.covariance_of(own))
    scale = np.concatenate((np.ones(11 * n), parameters[at], np.ones(n)))
    arm = with_links(robot, parameters[:10 * n].reshape(n, 10), parameters[10 * n:11 * n])
    if places[-1] >= 12 * n:
        arm.springs = frozen((parameters[12 * n:], result.settings['spring_angle']))
    # Another stated gravity is that of another mounting.
    if {*GRAVITY} <= {parameter.name for parameter in result.parameters} and (
            np.array_equal(result.settings['gravity'], robot.gravity)):
        arm = _under(arm, result.values(GRAVITY))
    return ArmModel(
        arm, covariance / np.outer(scale, scale),
        f'{"URDF as changed with its drive gains" if together else "identified"} '
        f'({result.source})', True, together)


def identified_arm(
    robot: Robot, values: RobotParameters, gains: CalibrationResult | None
) -> ArmModel | None:
    """Return the identified arm, None if there is none or it is not to be used.

    Args:
        robot: The arm by its URDF.
        values: The parameters.
        gains: The result whose drive gains are used, None for none.

    """
    if gains is None or gains.kind != ARM or not values.use_arm_model:
        return None
    return identified_model(robot, gains)


def known_with_gains(
    robot: Robot, values: RobotParameters, gains: CalibrationResult | None, gain_std: float
) -> ArmModel | None:
    """Return the arm as identified with drive gains, in the same motion or another one.

    It is None as for ``identified_arm``, and for gains that were calibrated without links.
    """
    names = parameter_names(robot.joint_names)[:11 * robot.n]
    if gains is None or not values.use_arm_model or (
            gains.kind != ARM and not {*names} <= {*gains.covariance_names}):
        return None
    return identified_model(robot, gains, gain_std)


def with_links(robot: Robot, links: Array, rotor_inertia: Array) -> Robot:
    """Return a copy of the arm with other links and rotor inertias.

    Args:
        robot: The arm.
        links: ``LINK`` parameters, shape (n, 10).
        rotor_inertia: Rotor inertias reflected to the joints, shape (n,) [kg·m²].

    """
    changed = robot.copy()
    for index, body in enumerate(links, start=1):
        changed.model.inertias[index] = pin.Inertia.FromDynamicParameters(body)
    changed.model.armature = np.array(rotor_inertia, dtype=float)
    return changed


def level_axes(gravity: Array) -> Array:
    """Return two unit vectors perpendicular to gravity, in its frame, shape (2, 3)."""
    down = gravity / np.linalg.norm(gravity)
    first = np.cross(down, np.eye(3)[int(np.argmin(np.abs(down)))])
    first /= np.linalg.norm(first)
    return np.stack((np.cross(down, first), first))


def on_leaning_base(robot: Robot, tilt: Array) -> Robot:
    """Return a copy of the arm whose base leans against gravity.

    Args:
        robot: The arm.
        tilt: Rotations of gravity about its ``level_axes``, shape (2,) [rad].

    """
    return _under(robot, pin.exp3(tilt @ level_axes(robot.gravity)) @ robot.gravity)


def _under(robot: Robot, gravity: Array) -> Robot:
    """Return a copy of the arm under another gravity [m/s²]."""
    other = robot.copy()
    other.gravity = frozen(gravity)
    other.model.gravity.linear = gravity
    return other


def gravity_changes(robot: Robot) -> list[Robot]:
    """Return the arm under the change of gravity per tilt of the base, about two axes [1/rad].

    At rest, its torques and wrenches are the derivatives by these tilts; none without gravity.
    """
    if not robot.gravity.any():
        return []
    changes = [_under(robot, np.cross(axis, robot.gravity)) for axis in level_axes(robot.gravity)]
    for arm in changes:
        arm.springs = np.zeros_like(robot.springs)
    return changes


def bending(robot: Robot, frame: str, parameters: Array) -> Robot:
    """Return the arm with links that bend: two more joints behind each one, across its axis.

    Args:
        robot: The arm.
        frame: Frame on which a body is mounted; the only one that the copy has.
        parameters: Inertial parameters of the body, shape (10,).

    Returns:
        A copy with three joints for each one, first the driven one.

    """
    rigid, model, last = robot.model, pin.Model(), [0]
    model.gravity = rigid.gravity
    for joint in range(1, rigid.njoints):
        link = model.addJoint(last[rigid.parents[joint]], rigid.joints[joint],
                              rigid.jointPlacements[joint], rigid.names[joint])
        linear, angular = pin.computeJointJacobian(
            rigid, rigid.createData(), pin.neutral(rigid), joint)[:, joint - 1].reshape(2, 3)
        for number, axis in enumerate(level_axes(angular if angular.any() else linear)):
            link = model.addJoint(link, pin.JointModelRevoluteUnaligned(axis), pin.SE3.Identity(),
                                  f'{rigid.names[joint]}, bending {number}')
        model.appendBodyToJoint(link, rigid.inertias[joint], pin.SE3.Identity())
        last.append(link)
    mount = rigid.frames[robot.frame_id(frame)]
    model.addFrame(pin.Frame(
        frame, last[mount.parentJoint], 0, mount.placement, pin.FrameType.OP_FRAME))
    model.appendBodyToJoint(
        last[mount.parentJoint], pin.Inertia.FromDynamicParameters(parameters), mount.placement)
    flexible = robot.copy()
    flexible.model, flexible.data = model, model.createData()
    flexible.springs = np.zeros((2, model.nq))
    return flexible


def moved_parameters(placement: pin.SE3) -> Array:
    """Return the matrix from dynamic parameters in a frame to those outside, shape (10, 10).

    A pseudo-inertia matrix J becomes T J Tᵀ.

    Args:
        placement: Placement of the frame.

    """
    transform = placement.homogeneous
    return np.column_stack([
        pin.PseudoInertia.FromMatrix(transform @ unit @ transform.T).toDynamicParameters()
        for unit in PSEUDO_INERTIA])


def arm_regressor(robot: Robot, q: Array, v: Array, a: Array) -> Array:
    """Return the regressor of the joint torques in the inertial parameters of all links.

    Args:
        robot: The arm.
        q: Joint angles, shape (k, n) [rad].
        v: Joint velocities, shape (k, n) [rad/s].
        a: Joint accelerations, shape (k, n) [rad/s²].

    Returns:
        Shape (k, n, 10 n), link by link in Pinocchio's order, in the frames of the joints.

    Raises:
        ConfigurationError: If a joint mimics another one.

    """
    robot.check_untied('Identification of links')
    model, n = robot.model, robot.n
    data = model.createData()
    # Copies, because the result is the same memory in each call.
    rows = [np.array(pin.computeJointTorqueRegressor(model, data, *row))
            for row in zip(q, v, a, strict=True)]
    return np.reshape(rows, (len(q), n, 10 * n))


class NewtonEuler:
    """Inverse dynamics of an arm and of a body on one of its frames, for all instants of a record.

    Each instant takes a call of 3 to 5 µs, which an estimation does not notice beside what it does
    with the results. Calls for many instants need a Pinocchio that is built with OpenMP.
    """

    def __init__(self, robot: Robot, frame: str) -> None:
        """Mount the body.

        Args:
            robot: The arm.
            frame: Frame on which the body is mounted.

        Raises:
            ConfigurationError: If there is no such frame, or a joint mimics another one.

        """
        robot.check_untied('Identification of links')
        self._robot, self._name, self._frame = robot, frame, robot.frame_id(frame)

    def tilts(self) -> tuple[NewtonEuler, ...]:
        """Return the same for each arm of ``gravity_changes``."""
        return tuple(NewtonEuler(robot, self._name) for robot in gravity_changes(self._robot))

    def torque(self, q: Array, v: Array, a: Array, parameters: Array | None = None) -> Array:
        """Return the joint torques of the arm, with or without the body.

        Args:
            q: Joint angles, shape (k, n) [rad].
            v: Joint velocities, shape (k, n) [rad/s].
            a: Joint accelerations, shape (k, n) [rad/s²].
            parameters: Inertial parameters of the body, also physically inconsistent ones, shape
                (10,); None for no body.

        Returns:
            Shape (k, n) [N·m].

        """
        model, data = self._robot.model, self._robot.model.createData()
        arm = self._robot.spring_torque(q) + np.reshape(
            [np.array(pin.rnea(model, data, *row)) for row in zip(q, v, a, strict=True)], q.shape)
        return arm if parameters is None else arm + self.torque_regressor(q, v, a) @ parameters

    def wrench(self, q: Array, v: Array, a: Array, parameters: Array) -> Array:
        """Return the wrench that moves the body; arguments as for ``torque``.

        Returns:
            Shape (k, 6), force first, in the axes of the frame about its origin [N, N·m].

        """
        return self.wrench_regressor(q, v, a) @ parameters

    def torque_regressor(self, q: Array, v: Array, a: Array) -> Array:
        """Return the regressor of the joint torques in the body's ten parameters.

        Args:
            q: Joint angles, shape (k, n) [rad].
            v: Joint velocities, shape (k, n) [rad/s].
            a: Joint accelerations, shape (k, n) [rad/s²].

        Returns:
            Shape (k, n, 10).

        """
        mounted = self._robot.model.frames[self._frame]
        carrier = int(mounted.parentJoint)
        if not carrier:
            return np.zeros((*q.shape, 10))
        # As a part of the link that carries it.
        own = slice(10 * carrier - 10, 10 * carrier)
        return np.asarray(arm_regressor(self._robot, q, v, a)[:, :, own]
                          @ moved_parameters(mounted.placement))

    def wrench_regressor(self, q: Array, v: Array, a: Array) -> Array:
        """Return the regressor of ``wrench`` in the body's ten parameters, shape (k, 6, 10).

        Args:
            q: Joint angles, shape (k, n) [rad].
            v: Joint velocities, shape (k, n) [rad/s].
            a: Joint accelerations, shape (k, n) [rad/s²].

        """
        model = self._robot.model
        data = model.createData()
        rows = []
        for row in zip(q, v, a, strict=True):
            # The regressor is that of the motion, and of the gravity, that it leaves in the data.
            pin.rnea(model, data, *row)
            rows.append(np.array(pin.frameBodyRegressor(model, data, self._frame)))
        return np.reshape(rows, (len(q), 6, 10))
