# SPDX-License-Identifier: Apache-2.0
"""Covariances of external wrenches, and the wrench on the tool from all sensors and torques.

An F/T sensor reads the wrenches of all contacts distal to it, joint torques those of all contacts
distal to the joint. With a contact on the tool only, all of them measure the same wrench, and
generalised least squares weights them by their covariances. A further contact on a link between
two sensors is estimated jointly; it is assumed if the link is in contact, or if its wrench differs
from zero by more than its covariance explains (χ² test, 99.9 %). Joint torques that contradict
the sensors by the same test are left out: there is a contact proximal to all sensors, or friction
has changed.

The covariance of a reading is that of the sensor, plus that of the model errors of arm and payload
since the tare, which all sensors and joint torques have in common.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pinocchio as pin
import scipy

from robocal_ros.arrays import Array
from robocal_ros.errors import ConfigurationError, DataError, RobocalError
from robocal_ros.messages import SECOND
from robocal_ros.robot import per_joint
from robocal_ros.wrench.contact import contradicts
from robocal_ros.wrench.observer import NO_EFFORT, Observation, WrenchObserver, failure
from robocal_ros.wrench.parameters import sensor_std
from robocal_ros.wrench.torque import ToolWrench, tool_wrench

MOST_FRAMES = 1000
"""Most frames that are kept."""

# Largest difference between the stamps of a sample and of a transform on /tf [ns].
_STALE = SECOND // 2
# Largest deviation of a quaternion from unit length, by rounding of publishers.
_UNIT = 0.01
# Significance level of the tests.
_RISK = 1e-3


@dataclass(frozen=True)
class _Rows:
    """Linear observations of wrenches: value = matrix · unknowns + noise.

    Attributes:
        value: Observed values, shape (m,).
        matrix: Coefficients of the unknowns, shape (m, u).
        noise: Covariance of the noise of its own, shape (m, m).
        errors: Errors due to the model, shape (m, p).

    """

    value: Array
    matrix: Array
    noise: Array
    errors: Array

    def solved(self) -> tuple[Array, Array]:
        """Return the matrix from values to unknowns, and the covariance of these, (u, m), (u, u).

        The unknowns are estimated by generalised least squares.
        """
        weighted = np.linalg.solve(self.noise + self.errors @ self.errors.T, self.matrix)
        covariance = np.linalg.inv(self.matrix.T @ weighted)
        return np.asarray(covariance @ weighted.T), np.asarray(covariance)

    def contradicts(self, other: _Rows, gain: Array) -> bool:
        """Return whether these rows contradict unknowns that are estimated from others.

        Args:
            other: The others, with independent noise and the same unknowns.
            gain: Matrix from their values to the unknowns, shape (u, m).

        """
        through = self.matrix @ gain
        errors = self.errors - through @ other.errors
        return contradicts(self.value - through @ other.value, np.asarray(
            self.noise + through @ other.noise @ through.T + errors @ errors.T), _RISK)

    def joined(self, other: _Rows) -> _Rows:
        """Return these rows and others whose noise is independent."""
        return _Rows(np.concatenate((self.value, other.value)),
                     np.vstack((self.matrix, other.matrix)),
                     scipy.linalg.block_diag(self.noise, other.noise),
                     np.vstack((self.errors, other.errors)))


@dataclass(frozen=True)
class Fused:
    """Estimates by ``Fusion`` of successive observations, NaN where there are none.

    Attributes:
        tool: Wrench on the tool, shape (m, 6) [N, N·m].
        tool_covariance: Its covariance, row by row, shape (m, 36).
        links: Covariance of the wrench on each sub-chain, row by row, shape (m, k, 36).
        torque: Covariance of the external joint torques, row by row, shape (m, n²).
        sources: Source of the tool wrench, empty if it is invalid, and why it is, or a source is
            left out; both empty for observations that are not about the tool.

    """

    tool: Array
    tool_covariance: Array
    links: Array
    torque: Array
    sources: list[tuple[str, str]]


@dataclass(frozen=True)
class _Known:
    """What is computed once for an observation.

    Attributes:
        observation: The observation.
        posture: Joint angles, shape (n,) [rad].
        places: Placements of the sensors' links in the root.
        held: Errors of what acts distal to each sensor due to the model, shape (k, 6, p).
        torques: Errors of the joint torques, shape (n, p).
        links: Covariances of the wrenches on sub-chains, as far as they were asked for.

    """

    observation: Observation
    posture: Array
    places: list[pin.SE3]
    held: Array
    torques: Array
    links: dict[int, Array]


@dataclass(frozen=True)
class _Edge:
    """Newest transform of a frame.

    Attributes:
        parent: The frame in which it is placed.
        placement: Maps coordinates of the frame to those of the parent; None if it is invalid.
        stamp: Its stamp [ns]; None if it is constant.

    """

    parent: str
    placement: pin.SE3 | None
    stamp: int | None


class FrameTree:
    """Newest transforms between frames, and the way to the robot description.

    A transform is used as it is, without interpolation to the instant of a sample. PyPI, from
    which ROS is installed where there is no distribution, does not have tf2's buffer.
    """

    def __init__(self, described: Collection[str], root: str) -> None:
        """Start without transforms.

        Args:
            described: Frames of the robot description.
            root: Root frame of the robot description.

        """
        self._described = described
        self._root = root
        self._edges: dict[str, _Edge] = {}

    def add(
        self, parent: str, child: str, stamp: int | None, translation: Sequence[float],
        quaternion: Sequence[float],
    ) -> bool:
        """Add a transform that maps coordinates of the child to those of the parent.

        Anybody may publish frames: of too many, that which was not published for longest is
        forgotten, constant ones last.

        Args:
            parent: The frame in which the child is placed.
            child: The child.
            stamp: Its stamp [ns]; None if it is constant.
            translation: The child's origin, shape (3,) [m].
            quaternion: Unit quaternion x, y, z, w.

        Returns:
            Whether a frame was forgotten.

        """
        numbers = np.array([*translation, *quaternion])
        valid = abs(np.linalg.norm(numbers[3:]) - 1.0) <= _UNIT and bool(
            np.isfinite(numbers).all())
        rotation = pin.Quaternion(numbers[3:]).normalized().matrix() if valid else None
        name = child.lstrip('/')
        self._edges.pop(name, None)
        self._edges[name] = _Edge(
            parent.lstrip('/'), pin.SE3(rotation, numbers[:3]) if valid else None, stamp)
        if len(self._edges) <= MOST_FRAMES:
            return False
        del self._edges[next((other for other, edge in self._edges.items()
                              if edge.stamp is not None), next(iter(self._edges)))]
        return True

    def locate(self, frame: str, stamp: int) -> tuple[str, pin.SE3]:
        """Return a frame of the robot description, and the placement of another frame in it.

        Args:
            frame: A frame that is not in the robot description.
            stamp: Stamp of the sample for which it is needed [ns].

        Raises:
            DataError: If transforms on the way are missing, invalid or stale, or form a loop.

        """
        names = self._upwards(frame)
        if names[-1] in self._described:
            return names[-1], self._placement(names, stamp)
        own = self._upwards(self._root)
        common = next((name for name in names if name in own), None)
        if common is None:
            raise DataError(
                f"Frame '{frame}' is not connected to the robot description: neither /tf_static "
                f"nor /tf has a transform of '{names[-1]}'. Start the node that publishes it, or "
                'correct tool_wrench_frame.')
        place = self._placement(own[:own.index(common) + 1], stamp)
        return self._root, place.inverse() * self._placement(
            names[:names.index(common) + 1], stamp)

    def _upwards(self, frame: str) -> list[str]:
        """Return a frame and those above it, up to one of the robot description."""
        names = [frame]
        while (edge := self._edges.get(names[-1])) is not None:
            if edge.parent in names:
                loop = ' → '.join([*names[names.index(edge.parent):], edge.parent])
                raise DataError(f'The transforms on /tf_static and /tf form a loop: {loop}. Let '
                                'each frame have one parent, from one node.')
            names.append(edge.parent)
            if edge.parent in self._described:
                break
        return names

    def _placement(self, names: Sequence[str], stamp: int) -> pin.SE3:
        """Return the placement of the first frame in the last one."""
        place = pin.SE3.Identity()
        for name in names[:-1]:
            edge = self._edges[name]
            if edge.placement is None:
                raise DataError(
                    f"The transform from '{name}' to '{edge.parent}' is not finite, or its "
                    'quaternion does not have length 1. Correct the node that publishes it.')
            if edge.stamp is not None and abs(stamp - edge.stamp) > _STALE:
                age = (stamp - edge.stamp) / SECOND
                raise DataError(
                    f"The transform from '{name}' to '{edge.parent}' on /tf is {abs(age):.1f} s "
                    f'{"older" if age > 0.0 else "newer"} than the samples; expected at most '
                    f'{_STALE / SECOND:g} s. Check the node that publishes it, and the clocks.')
            place = edge.placement * place
        return place


class Fusion:
    """Covariances of an observer's outputs, and its tool wrench.

    Attributes:
        frame: Frame in which the tool wrench is expressed, about its origin.
        outside: Frames that place that frame; None if the robot description does.
        by_torque: Whether joint torques alone are the source of the tool wrench.

    """

    def __init__(self, observer: WrenchObserver, frames: FrameTree | None = None) -> None:
        """Choose the sources.

        Args:
            observer: The observer.
            frames: Frames outside of the robot description; None for none.

        Raises:
            ConfigurationError: If a frame does not exist, a parameter with one value per sensor or
                joint has the wrong length, or the source is a sensor and none carries the tool
                frame.

        """
        values, arm = observer.values, observer.arm
        self._observer, self._values, self._arm = observer, values, arm
        self._robot = arm.robot.copy()
        self._tool = arm.robot.tool_frame
        self.frame = values.tool_wrench_frame or self._tool
        self.outside = None if self._robot.model.existFrame(self.frame) else frames
        if self.outside is None:
            self._robot.frame_id(self.frame)
        carrier = arm.chain_of_frame(self._tool)
        if values.tool_wrench_source == 'sensor' and carrier is None:
            raise ConfigurationError(
                f"tool_wrench_source is 'sensor', but no F/T sensor carries '{self._tool}'; add "
                "one to sensor_frames, or set tool_wrench_source to 'torque'.")
        self.by_torque = values.tool_wrench_source == 'torque' or carrier is None
        self._known: _Known | None = None
        # Covariance of each reading.
        self._noise = arm.noise(sensor_std(values, len(arm.mounts)))
        self._torque_std = per_joint(values.torque_std, arm.robot.n, 'torque_std')
        # Joints proximal to all sensors: they transmit every wrench that a sensor reads.
        self._outer = arm.outer_joints()
        # The sub-chain with the tool, -1 for none, and sensors proximal to it.
        self._own = -1 if carrier is None else carrier.proximal
        self._path = [chain.proximal for chain in arm.chains if self._own in (
            chain.proximal, *arm.all_distal[chain.proximal])]

    def all_of(self, observations: Sequence[Observation]) -> Fused:
        """Return the tool wrench and all covariances of successive observations."""
        count, links, joints = len(observations), len(self._arm.mounts), self._robot.n
        tools, spreads, of_links, of_torques = (np.full((count, *shape), np.nan) for shape in (
            (6,), (36,), (links, 36), (joints * joints,)))
        made = Fused(tools, spreads, of_links, of_torques, [('', '')] * count)
        for row, item in enumerate(observations):
            for index in item.links:
                if not item.reasons[index]:
                    made.links[row, index] = self.link_covariance(item, index).ravel()
            if item.external is not None:
                made.torque[row] = self.torque_covariance(item).ravel()
            try:
                tool = self.tool(item)
            except RobocalError as error:
                made.sources[row] = '', str(error)
            except (ArithmeticError, ValueError) as error:
                made.sources[row] = '', failure(error)
            else:
                if tool is not None:
                    made.tool[row] = tool.wrench
                    made.tool_covariance[row] = tool.covariance.ravel()
                    made.sources[row] = tool.source, tool.remark
        return made

    # ------------------------------------------------------------------- covariances

    def torque_covariance(self, observation: Observation) -> Array:
        """Return the covariance of external joint torques, shape (n, n) [N²·m²].

        Raises:
            ValueError: If the observation has none.

        """
        errors = self._geometry(observation).torques
        return np.asarray(self._torque_noise(observation) + errors @ errors.T)

    def _torque_noise(self, observation: Observation) -> Array:
        """Return that part of ``torque_covariance`` that is not due to the model."""
        torques, motion = self._observer.torques, observation.motion
        if torques is None or motion is None or observation.external is None:
            raise ValueError('The observation has no external joint torques.')
        # Identified friction has the same gains.
        driven = observation.needed - observation.external
        friction = torques.friction.variance(motion[1], driven)
        late = self._values.delay_std * observation.torque_rate
        return np.asarray(np.diag(self._torque_std**2 + friction)
                          + self._observer.zero_covariance + np.outer(late, late)
                          + self._observer.gain_covariance * np.outer(driven, driven))

    def link_covariance(self, observation: Observation, index: int) -> Array:
        """Return the covariance of the wrench on a sub-chain, in its frame, shape (6, 6).

        Args:
            observation: An observation in which its wrench is valid.
            index: The sub-chain.

        """
        covariance, chain = self._noise[index], self._arm.chains[index]
        if index in self._observer.imu_chains and observation.motion is not None:
            regressor = self._observer.imu_chains[index].link.regressor(*observation.motion)
            errors = self._observer.errors.rigid(index, regressor)
            for d in chain.distal:
                turn = self._arm.transform(index, d)
                covariance = covariance + turn @ self._noise[d] @ turn.T
            return np.asarray(covariance + errors @ errors.T)
        known = self._geometry(observation)
        if index not in known.links:
            errors = known.held[index]
            for d in chain.distal:
                turn = _moved(known.places[index], known.places[d])
                covariance = covariance + turn @ self._noise[d] @ turn.T
                errors = errors - turn @ known.held[d]
            known.links[index] = covariance + errors @ errors.T
        return known.links[index]

    def _geometry(self, observation: Observation) -> _Known:
        """Return what is computed once for an observation.

        Raises:
            ValueError: If it is without joint states.

        """
        if self._known is None or self._known.observation is not observation:
            if observation.motion is None:
                raise ValueError('The observation has no joint states.')
            posture = observation.motion[0]
            held, torques = self._observer.errors.outputs(observation.motion)
            if observation.scatter.size:
                by = self._observer.inertia(posture) @ observation.scatter
                torques = np.hstack((torques, by[:len(posture)]))
                held = np.dstack((held, by[len(posture):].reshape(len(held), 6, -1)))
            self._known = _Known(
                observation, posture, [self._robot.transform_frame_to_root(posture, chain.link)
                                       for chain in self._arm.chains], held, torques, {})
        return self._known

    # ------------------------------------------------------------------- tool wrench

    def tool(self, observation: Observation) -> ToolWrench | None:
        """Return the wrench on the tool, None if the observation is not about the tool.

        Args:
            observation: The newest observation.

        Raises:
            DataError: If no source that may be used measures it, or the output frame cannot be
                located.
            ConfigurationError: If it is not on the link whose IMU is the only source.

        """
        if observation.links != self._observer.joint_chains.links:
            return self._of_imu_link(observation)
        sensors = [i for i in self._path if i in observation.links]
        if not self.by_torque and not sensors:
            return None
        if observation.motion is None:
            raise DataError(observation.problem)
        if self.by_torque:
            return self._of_torque(observation)
        missing = observation.missing or [''] * len(self._arm.mounts)
        lost = [missing[i] for i in sensors if missing[i]]
        usable = [i for i in sensors if not missing[i]]
        touched = self._touched(observation)
        # Each touched sub-chain needs a sensor distal to it.
        if not usable or any(set(usable).isdisjoint(self._arm.all_distal[i]) for i in touched):
            why = lost[0] if lost else 'A contact on a link proximal to the tool hides it.'
            if self._values.tool_wrench_source == 'auto' and self._values.tool_wrench_fallback:
                return replace(self._of_torque(observation), remark=why)
            raise DataError(
                why if self._values.tool_wrench_source == 'sensor'
                else f'{why} Joint torques are used instead with tool_wrench_fallback.')
        rows = self._sensor_rows(observation, touched, usable)
        gain, covariance = rows.solved()
        by_torque = False
        if observation.external is not None and self._values.tool_wrench_source == 'auto' \
                and self._outer:
            torque = self._torque_rows(observation, observation.external, touched)
            by_torque = not torque.contradicts(rows, gain)
            if by_torque:
                rows = rows.joined(torque)
                gain, covariance = rows.solved()
            else:
                lost.append('Joint torques contradict the F/T sensors.')
        wrench, covariance = (gain @ rows.value)[:6], covariance[:6, :6]
        if self.frame != self._tool:
            turn = self._shift(observation)
            wrench, covariance = turn @ wrench, turn @ covariance @ turn.T
        return ToolWrench(wrench, np.inf, (), covariance, tuple(
            self._arm.mounts[i].frame for i in usable), by_torque, ' '.join(lost))

    def _place(self, stamp: int) -> tuple[str, pin.SE3]:
        """Return a frame of the robot description, and the output frame's placement in it."""
        if self.outside is None:
            return self.frame, pin.SE3.Identity()
        return self.outside.locate(self.frame, stamp)

    def _shift(self, observation: Observation) -> Array:
        """Return the matrix of wrenches from the tool frame to the output frame, shape (6, 6)."""
        robot, posture = self._robot, self._geometry(observation).posture
        anchor, place = self._place(observation.nanoseconds)
        return _moved(robot.transform_frame_to_root(posture, anchor) * place,
                      robot.transform_frame_to_root(posture, self._tool))

    def _of_imu_link(self, observation: Observation) -> ToolWrench | None:
        own = self._own
        if self.by_torque or own not in observation.links:
            return None
        if observation.reasons[own]:
            raise DataError(observation.reasons[own])
        chain = self._arm.chains[own]
        anchor, place = self._place(observation.nanoseconds)
        turn = (self._arm.frame_in_chain(chain, anchor) * place).inverse().toDualActionMatrix()
        covariance = self.link_covariance(observation, own)
        return ToolWrench(
            np.asarray(turn @ observation.wrench[own]), np.inf, (),
            np.asarray(turn @ covariance @ turn.T),
            tuple(self._arm.mounts[i].frame for i in (own, *chain.distal)), by_torque=False)

    def _of_torque(self, observation: Observation) -> ToolWrench:
        if observation.external is None:
            raise DataError(NO_EFFORT)
        jacobian = np.linalg.inv(self._shift(observation)).T @ self._jacobian(
            observation, self._tool)
        return tool_wrench(observation.external, jacobian, self._values,
                           self.torque_covariance(observation))

    def _jacobian(self, observation: Observation, frame: str) -> Array:
        """Return the Jacobian of a frame in its axes, shape (6, n)."""
        robot = self._robot
        return np.array(pin.computeFrameJacobian(
            robot.model, robot.data, self._geometry(observation).posture, robot.frame_id(frame),
            pin.ReferenceFrame.LOCAL)).reshape(6, robot.n)

    def _touched(self, observation: Observation) -> list[int]:
        """Return the sub-chains proximal to the tool's that have a contact of their own."""
        return [i for i in self._path if i != self._own and i in observation.links
                and (i in observation.contacts or (not observation.reasons[i] and contradicts(
                    observation.wrench[i], self.link_covariance(observation, i), _RISK)))]

    def _sensor_rows(
        self, observation: Observation, touched: list[int], usable: list[int]
    ) -> _Rows:
        """Return the readings as rows in the wrenches on the tool and on touched sub-chains."""
        known = self._geometry(observation)
        places = known.places
        sources = [self._robot.transform_frame_to_root(known.posture, self._tool),
                   *(places[i] for i in touched)]
        matrix = np.zeros((len(usable), 6, len(sources), 6))
        for row, sensor in enumerate(usable):
            for column, (index, source) in enumerate(zip(
                    (self._own, *touched), sources, strict=True)):
                if index == sensor or index in self._arm.all_distal[sensor]:
                    matrix[row, :, column] = _moved(places[sensor], source)
        size = 6 * len(usable)
        return _Rows(observation.distal[usable].ravel(), matrix.reshape(size, -1),
                     scipy.linalg.block_diag(*self._noise[usable]),
                     known.held[usable].reshape(size, -1))

    def _torque_rows(self, observation: Observation, external: Array, touched: list[int]) -> _Rows:
        """Return torques of the joints proximal to all sensors as rows in the same wrenches."""
        frames = [self._tool, *(self._arm.chains[index].link for index in touched)]
        matrix = np.hstack([self._jacobian(observation, frame).T for frame in frames])
        outer, noise = self._outer, self._torque_noise(observation)
        return _Rows(external[outer], matrix[outer], noise[np.ix_(outer, outer)],
                     self._geometry(observation).torques[outer])


def _moved(to: pin.SE3, source: pin.SE3) -> Array:
    """Return the matrix of wrenches between two frames with given placements, shape (6, 6)."""
    return np.array(to.actInv(source).toDualActionMatrix())
