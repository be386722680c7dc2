# SPDX-License-Identifier: Apache-2.0
"""Covariances of external wrenches, and the wrench on the tool from all sensors and torques.

An F/T sensor reads the wrenches of all contacts distal to it, joint torques those of all contacts
distal to the joint. With a contact on the tool only, all of them measure the same wrench, and
generalised least squares weights them by their covariances. A further contact on a link between
two sensors is estimated jointly; it is assumed if the link is in contact, or if its wrench differs
from zero by more than its covariance explains (χ² test, 99.9 %). Joint torques that contradict
the sensors by the same test are left out: there is a contact proximal to all sensors, or friction
has changed.

The covariance of a reading is that of the sensor, plus a given fraction of the compensated weights
and inertial forces, and what the covariance of the payload result explains, both as far as they
changed since the tare.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pinocchio as pin
import scipy

from robocal_ros.arrays import Array
from robocal_ros.errors import ConfigurationError
from robocal_ros.robot.setup import per_joint
from robocal_ros.wrench.frames import FrameTree
from robocal_ros.wrench.observer import Observation, WrenchObserver
from robocal_ros.wrench.parameters import sensor_std
from robocal_ros.wrench.torque import ToolWrench, tool_wrench

# Significance level of the tests.
_RISK = 1e-3


def contradicts(residual: Array, covariance: Array) -> bool:
    """Return whether a residual is larger than its covariance explains (χ² test, 99.9 %)."""
    return bool(residual @ np.linalg.solve(covariance, residual)
                > scipy.special.chdtri(len(residual), _RISK))


@dataclass(frozen=True)
class _Rows:
    """Linear observations of wrenches: value = matrix · unknowns + noise.

    Attributes:
        value: Observed values, shape (m,).
        matrix: Coefficients of the unknowns, shape (m, u).
        covariance: Covariance of the noise, shape (m, m).

    """

    value: Array
    matrix: Array
    covariance: Array

    def solved(self) -> tuple[Array, Array]:
        """Return the unknowns and their covariance by generalised least squares."""
        weighted = np.linalg.solve(self.covariance, self.matrix)
        covariance = np.linalg.inv(self.matrix.T @ weighted)
        return covariance @ (weighted.T @ self.value), covariance

    def joined(self, other: _Rows) -> _Rows:
        """Return these rows and others whose noise is independent."""
        count, more = len(self.value), len(other.value)
        covariance = np.zeros((count + more, count + more))
        covariance[:count, :count], covariance[count:, count:] = self.covariance, other.covariance
        return _Rows(np.concatenate((self.value, other.value)),
                     np.vstack((self.matrix, other.matrix)), covariance)


@dataclass(frozen=True)
class Fused:
    """Estimates by ``Fusion`` of successive observations, NaN where there are none.

    Attributes:
        tool: Wrench on the tool, shape (m, 6) [N, N·m].
        tool_covariance: Its covariance, row by row, shape (m, 36).
        links: Covariance of the wrench on each sub-chain, row by row, shape (m, k, 36).
        torque: Covariance of the external joint torques, row by row, shape (m, n²).

    """

    tool: Array
    tool_covariance: Array
    links: Array
    torque: Array


@dataclass(frozen=True)
class _Known:
    """What is computed once for an observation.

    Attributes:
        observation: The observation.
        places: Placements of the sensors' links in the root.
        model: Covariances of the wrenches that move each sub-chain, shape (k, 6, 6).
        errors: Errors of what acts distal to each sensor due to the load, shape (p, k, 6).
        own: The same of what acts on each sub-chain, shape (p, k, 6).
        links: Covariances of the wrenches on sub-chains, as far as they were asked for.

    """

    observation: Observation
    places: list[pin.SE3]
    model: Array
    errors: Array
    own: Array
    links: dict[int, Array]


class Fusion:
    """Covariances of an observer's outputs, and its tool wrench.

    Attributes:
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
        self._frame = values.tool_wrench_frame or self._tool
        self._frames = frames
        if self.described:
            self._robot.frame_id(self._frame)
        self._chain = arm.chain_of_frame(self._tool)
        if values.tool_wrench_source == 'sensor' and self._chain is None:
            raise ConfigurationError(
                f"tool_wrench_source is 'sensor', but no F/T sensor carries '{self._tool}'; add "
                "one to sensor_frames, or set tool_wrench_source to 'torque'.")
        self.by_torque = values.tool_wrench_source == 'torque' or self._chain is None
        self._known: _Known | None = None
        # Covariance of each reading, in its measurement frame, then in its link's.
        self._noise = arm.turned(np.array([
            np.diag(std**2) for std in sensor_std(values, len(arm.mounts))]).reshape(-1, 6, 6))
        self._torque_std = per_joint(values.torque_std, arm.robot.n, 'torque_std')
        # Joints proximal to all sensors: they transmit every wrench that a sensor reads.
        self._outer = [i for i, name in enumerate(arm.robot.joint_names) if not any(
            name in arm.distal_joints(chain.proximal) for chain in arm.chains)]
        self._path = self._carrying(self._tool)

    @property
    def frame(self) -> str:
        """Frame in which the tool wrench is expressed, about its origin."""
        return self._frame

    @property
    def described(self) -> bool:
        """Whether that frame must be in the robot description."""
        return self._frames is None or bool(self._robot.model.existFrame(self._frame))

    def all_of(self, observations: Sequence[Observation]) -> Fused:
        """Return the tool wrench and all covariances of successive observations."""
        count, links, joints = len(observations), len(self._arm.mounts), self._robot.n
        made = Fused(*(np.full((count, *shape), np.nan) for shape in (
            (6,), (36,), (links, 36), (joints * joints,))))
        for row, item in enumerate(observations):
            tool = self.tool(item)
            if tool is not None:
                made.tool[row], made.tool_covariance[row] = tool.wrench, tool.covariance.ravel()
            for index in item.links:
                if not item.reasons[index]:
                    made.links[row, index] = self.link_covariance(item, index).ravel()
            if item.external is not None:
                made.torque[row] = self.torque_covariance(item).ravel()
        return made

    # ------------------------------------------------------------------- covariances

    def torque_covariance(self, observation: Observation) -> Array:
        """Return the covariance of external joint torques, shape (n, n) [N²·m²].

        Raises:
            ValueError: If the observation has none.

        """
        torques, velocity = self._observer.torques, observation.velocity
        if torques is None or velocity is None or observation.needed is None:
            raise ValueError('The observation has no external joint torques.')
        model = self._values.model_std * observation.needed
        covariance = np.diag(self._torque_std**2 + model**2 + torques.friction.variance(velocity))
        posture, acceleration = observation.posture, observation.acceleration
        if self._observer.load_deviations.size and posture is not None \
                and acceleration is not None:
            wrenches = self._load_wrenches(posture, velocity, acceleration)
            of_load = self._jacobian(posture, self._observer.load_frame).T @ wrenches
            covariance += of_load @ of_load.T
        return covariance

    def link_covariance(self, observation: Observation, index: int) -> Array:
        """Return the covariance of the wrench on a sub-chain, in its frame, shape (6, 6).

        Args:
            observation: An observation in which its wrench is valid.
            index: The sub-chain.

        """
        covariance = self._noise[index]
        if observation.posture is not None:
            known = self._geometry(observation, observation.posture)
            if index not in known.links:
                own = known.own[:, index]
                covariance = covariance + known.model[index] + own.T @ own
                for d in self._arm.chains[index].distal:
                    turn = _moved(known.places[index], known.places[d])
                    covariance = covariance + turn @ self._noise[d] @ turn.T
                known.links[index] = covariance
            return known.links[index]
        if self._arm.chains[index].distal:
            placement = self._arm.distal_transform(self._arm.chains[index])
            if placement is not None:
                turn = placement.toDualActionMatrix()
                (d,) = self._arm.chains[index].distal
                covariance = covariance + turn @ self._noise[d] @ turn.T
        return np.asarray(covariance)

    def _geometry(self, observation: Observation, posture: Array) -> _Known:
        """Return what is computed once for an observation."""
        if self._known is None or self._known.observation is not observation:
            places = [self._robot.transform_frame_to_root(posture, chain.link)
                      for chain in self._arm.chains]
            errors = self._load_errors(observation, posture, places)
            self._known = _Known(
                observation, places, self._model_covariance(observation, posture), errors,
                self._own(posture, errors) if errors.size else errors, {})
        return self._known

    def _carrying(self, frame: str) -> tuple[int, ...]:
        """Return the sensors proximal to a frame."""
        own = self._arm.chain_of_frame(frame)
        return () if own is None else tuple(
            chain.proximal for chain in self._arm.chains if chain.proximal == own.proximal
            or own.proximal in self._arm.all_distal(chain.proximal))

    def _load_wrenches(self, q: Array, v: Array, a: Array) -> Array:
        """Return changes of the wrench that moves the load by its deviations, shape (6, p)."""
        robot, frame = self._robot, self._observer.load_frame
        # frameBodyRegressor reads the accelerations, gravity included, that rnea left.
        pin.rnea(robot.model, robot.data, q, v, a)
        return np.asarray(pin.frameBodyRegressor(
            robot.model, robot.data, robot.frame_id(frame)) @ self._observer.load_deviations)

    def _load_errors(
        self, observation: Observation, posture: Array, places: list[pin.SE3]
    ) -> Array:
        """Return errors of the wrenches distal to the sensors, since the tare, (p, k, 6)."""
        observer, robot = self._observer, self._robot
        errors = np.zeros((observer.load_deviations.shape[1], len(places), 6))
        if not errors.size or observation.velocity is None or observation.acceleration is None:
            return errors
        states = [(1.0, posture, observation.velocity, observation.acceleration)]
        if observer.reference is not None:
            rest = np.zeros(robot.n)
            states.append((-1.0, observer.reference.posture, rest, rest))
        for sign, q, v, a in states:
            wrenches = self._load_wrenches(q, v, a)
            source = robot.transform_frame_to_root(q, observer.load_frame)
            for index in self._carrying(observer.load_frame):
                place = robot.transform_frame_to_root(q, self._arm.chains[index].link)
                errors[:, index] += sign * (_moved(place, source) @ wrenches).T
        return errors

    def _model_covariance(self, observation: Observation, posture: Array) -> Array:
        count = len(self._arm.mounts)
        if observation.held is None:
            return np.zeros((count, 6, 6))
        change = self._own(posture, observation.held[None])
        reference = self._observer.reference
        if reference is not None:
            rest = np.zeros((1, self._robot.n))
            held = self._arm.held_many(reference.posture[None], rest, rest)[0]
            change = change - self._own(reference.posture, held)
        size = np.linalg.norm(change.reshape(count, 2, 3), axis=2)
        std = self._values.model_std * np.repeat(size, 3, axis=1)
        return np.asarray(std[:, :, None]**2 * np.eye(6))

    def _own(self, posture: Array, distal: Array) -> Array:
        """Return ``SensedArm.between`` of several sets of wrenches in one posture, (m, k, 6)."""
        return self._arm.between_many(np.tile(posture, (len(distal), 1)), distal)

    # ------------------------------------------------------------------- tool wrench

    def tool(self, observation: Observation) -> ToolWrench | None:
        """Return the wrench on the tool, None if no source measures it.

        Args:
            observation: The newest observation.

        Raises:
            DataError: If the output frame cannot be located.
            ConfigurationError: If it is not on the link whose IMU is the only source.

        """
        posture = observation.posture
        if posture is None:
            return self._of_imu_link(observation)
        touched = [] if self.by_torque else self._touched(observation)
        rows = None if self.by_torque else self._sensor_rows(observation, posture, touched)
        if rows is None:
            return self._of_torque(observation, posture)
        wrench, covariance = rows.solved()
        if observation.external is not None and self._values.tool_wrench_source == 'auto' \
                and self._outer:
            torque = self._torque_rows(observation, observation.external, posture, touched)
            predicted = torque.covariance + torque.matrix @ covariance @ torque.matrix.T
            if not contradicts(torque.value - torque.matrix @ wrench, predicted):
                wrench, covariance = rows.joined(torque).solved()
        wrench, covariance = wrench[:6], covariance[:6, :6]
        if self._frame != self._tool:
            turn = self._shift(posture, observation.nanoseconds)
            wrench, covariance = turn @ wrench, turn @ covariance @ turn.T
        return ToolWrench(wrench, np.inf, (), covariance)

    def _place(self, stamp: int) -> tuple[str, pin.SE3]:
        """Return a frame of the robot description, and the output frame's placement in it."""
        if self._frames is None or self.described:
            return self._frame, pin.SE3.Identity()
        return self._frames.locate(self._frame, stamp)

    def _shift(self, posture: Array, stamp: int) -> Array:
        """Return the matrix of wrenches from the tool frame to the output frame, shape (6, 6)."""
        robot, (anchor, place) = self._robot, self._place(stamp)
        return _moved(robot.transform_frame_to_root(posture, anchor) * place,
                      robot.transform_frame_to_root(posture, self._tool))

    def _of_imu_link(self, observation: Observation) -> ToolWrench | None:
        chain = self._chain
        if self.by_torque or chain is None or chain.proximal not in observation.links \
                or observation.reasons[chain.proximal]:
            return None
        anchor, place = self._place(observation.nanoseconds)
        turn = (self._arm.frame_in_chain(chain, anchor) * place).inverse().toDualActionMatrix()
        covariance = self.link_covariance(observation, chain.proximal)
        return ToolWrench(np.asarray(turn @ observation.wrench[chain.proximal]), np.inf, (),
                          np.asarray(turn @ covariance @ turn.T))

    def _of_torque(self, observation: Observation, posture: Array) -> ToolWrench | None:
        if observation.external is None or self._values.tool_wrench_source == 'sensor':
            return None
        turn = self._shift(posture, observation.nanoseconds)
        jacobian = np.linalg.inv(turn).T @ self._jacobian(posture, self._tool)
        return tool_wrench(observation.external, jacobian, self._values,
                           self.torque_covariance(observation))

    def _jacobian(self, posture: Array, frame: str) -> Array:
        """Return the Jacobian of a frame in its axes, shape (6, n)."""
        robot = self._robot
        return np.array(pin.computeFrameJacobian(
            robot.model, robot.data, posture, robot.frame_id(frame),
            pin.ReferenceFrame.LOCAL)).reshape(6, robot.n)

    def _touched(self, observation: Observation) -> list[int]:
        """Return the sub-chains proximal to the tool's that have a contact of their own."""
        return [i for i in self._path if self._chain is not None and i != self._chain.proximal
                and i in observation.links
                and (i in observation.contacts or (not observation.reasons[i] and contradicts(
                    observation.wrench[i], self.link_covariance(observation, i))))]

    def _sensor_rows(
        self, observation: Observation, posture: Array, touched: list[int]
    ) -> _Rows | None:
        """Return the readings as rows in the wrenches on the tool and on touched sub-chains.

        None if they do not determine these wrenches.
        """
        if observation.distal is None:
            return None
        usable = [i for i in self._path if i in observation.links
                  and (observation.missing is None or not observation.missing[i])]
        own = self._chain
        # Each touched sub-chain needs a sensor distal to it.
        if own is None or not usable or any(
                not any(d in usable for d in self._arm.all_distal(i)) for i in touched):
            return None
        known = self._geometry(observation, posture)
        places = known.places
        sources = [self._robot.transform_frame_to_root(posture, self._tool),
                   *(places[i] for i in touched)]
        matrix = np.zeros((len(usable), 6, len(sources), 6))
        for row, sensor in enumerate(usable):
            for column, (index, source) in enumerate(zip(
                    (own.proximal, *touched), sources, strict=True)):
                if index == sensor or index in self._arm.all_distal(sensor):
                    matrix[row, :, column] = _moved(places[sensor], source)
        size = 6 * len(usable)
        covariance = np.zeros((len(usable), 6, len(usable), 6))
        for row, sensor in enumerate(usable):
            covariance[row, :, row] = self._noise[sensor]
        of_load = known.errors[:, usable].reshape(len(known.errors), size)
        total = covariance.reshape(size, size) + of_load.T @ of_load
        for index, part in enumerate(known.model):
            seen = np.array([
                _moved(places[sensor], places[index])
                if index == sensor or index in self._arm.all_distal(sensor) else np.zeros((6, 6))
                for sensor in usable]).reshape(size, 6)
            total = total + seen @ part @ seen.T
        return _Rows(observation.distal[usable].ravel(), matrix.reshape(size, -1), total)

    def _torque_rows(
        self, observation: Observation, external: Array, posture: Array, touched: list[int]
    ) -> _Rows:
        """Return torques of the joints proximal to all sensors as rows in the same wrenches."""
        frames = [self._tool, *(self._arm.chains[index].link for index in touched)]
        matrix = np.hstack([self._jacobian(posture, frame).T for frame in frames])
        outer = self._outer
        return _Rows(external[outer], matrix[outer],
                     self.torque_covariance(observation)[np.ix_(outer, outer)])


def _moved(to: pin.SE3, source: pin.SE3) -> Array:
    """Return the matrix of wrenches between two frames with given placements, shape (6, 6)."""
    return np.array(to.actInv(source).toDualActionMatrix())
