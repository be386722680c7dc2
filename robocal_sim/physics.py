# SPDX-License-Identifier: Apache-2.0
"""Physics of the arm: rigid bodies (MuJoCo), joint friction and compliance, servo drives."""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np
import numpy.typing as npt

from robocal_ros.errors import ConfigurationError
from robocal_sim.drive import ServoDrive
from robocal_sim.friction import LuGreFriction
from robocal_sim.model import LOAD_BODY, Description, build_model, check_names
from robocal_sim.truth import HiddenTruth, JointTruth, Vector3

FloatArray = npt.NDArray[np.float64]

CONTROL_STEP = 1.0e-3
"""Time step of the drives and of the physics [s]."""


@dataclass
class Push:
    """Wrench on a link, constant in the link's frame, for a limited time.

    Attributes:
        body: MuJoCo's index of the link.
        force: In the link's frame [N], shape (3,).
        moment: About the link's origin, in its frame [N·m], shape (3,).
        until: Simulated end time [s].

    """

    body: int
    force: FloatArray
    moment: FloatArray
    until: float


class ArmPhysics:
    """Arm and drives, advanced by one control step at a time.

    All joint arrays have the shape (n,) in the order of the description's joints. After
    `step`, all quantities belong to the instant at which the step began.

    Attributes:
        description: The robot.
        time: Simulated time at which the next step begins [s].
        position: Link angles [rad].
        velocity: Link velocities [rad/s].
        acceleration: Link accelerations [rad/s²].
        encoder: Motor-side angles as measured by the drives [rad]: link angle + compliance ·
            transmitted torque.
        encoder_velocity: Rate of `encoder` [rad/s].
        effort: Link-side drive torque [N·m]: rigid-body torque plus friction, without the
            torque that accelerates the rotor.
        reported: Effort as the drive reports it before its sensor [N·m], with the rotor's
            share, or without the torque of the URDF's arm.
        friction: Friction of the joints.

    """

    def __init__(
        self, description: Description, truth: HiddenTruth, start: FloatArray | None = None
    ) -> None:
        check_names(description, truth)
        count = len(description.joints)
        joints = [truth.joints.get(name, JointTruth()) for name in description.joints]
        self.description = description
        self._truth = truth
        self._model = build_model(description, truth, loaded=True, timestep=CONTROL_STEP)
        self._data = mujoco.MjData(self._model)
        # Views of MuJoCo's memory: each attribute access would create a new one.
        self._state = self._data.qpos, self._data.qvel, self._data.qacc
        self._applied = self._data.qfrc_applied
        self._measured = self._data.sensordata
        self._order = np.array([self._model.joint(name).dofadr[0] for name in description.joints])
        self._rotor = self._model.dof_armature[self._order].copy()
        self._compliance = np.array([joint.compliance for joint in joints])
        self._reported_rotor = self._rotor * [joint.rotor_in_effort for joint in joints]
        self.friction = LuGreFriction([joint.friction for joint in joints])
        self._wrenches = {sensor.frame: self._places('FORCE', 'TORQUE', sensor.frame)
                          for sensor in truth.force_torque_sensors}
        self._inertials = {sensor.frame: self._places('ACCELEROMETER', 'GYRO', sensor.frame)
                           for sensor in truth.imus}
        self._pushes: list[Push] = []
        self._pulled = False
        self._load = self._find_load()
        self.detach_load()

        angles = np.zeros(count) if start is None else np.asarray(start, dtype=np.float64)
        nominal = build_model(description, truth, loaded=False, timestep=CONTROL_STEP)
        self._nominal = (nominal, mujoco.MjData(nominal))
        self._servo = self._drives(angles)
        self.position: FloatArray = angles.copy()
        self.velocity: FloatArray = np.zeros(count)
        self.acceleration: FloatArray = np.zeros(count)
        self.encoder: FloatArray = angles.copy()
        self.encoder_velocity: FloatArray = np.zeros(count)
        self.effort: FloatArray = np.zeros(count)
        self.reported: FloatArray = np.zeros(count)
        self._sag: FloatArray = np.zeros(count)
        self._settle(angles)

    @property
    def time(self) -> float:
        """Simulated time at which the next step begins [s]."""
        return float(self._data.time)

    @property
    def reference(self) -> FloatArray:
        """The drives' limited position reference, shape (n,) [rad]."""
        return self._servo.reference

    def step(self, command: FloatArray, effort: FloatArray | None = None) -> None:
        """Advance by one control step.

        Args:
            command: Position command, shape (n,) [rad].
            effort: Effort command, shape (n,) [N·m]; zero by default.

        """
        if effort is None:
            effort = np.zeros_like(command)
        order = self._order
        angles, rates, accelerations = self._state
        position: FloatArray = angles[order]
        velocity: FloatArray = rates[order]
        friction = self.friction.step(velocity, CONTROL_STEP, self.effort - self.friction.torque)
        lost = friction + self._rotor * self.acceleration
        torque = self._servo.update(command, effort, position, velocity, lost)
        self._applied[order] = torque - friction
        if self._pushes or self._pulled:
            self._apply_wrenches()
        mujoco.mj_step(self._model, self._data)

        self.position = position
        self.velocity = velocity
        self.acceleration = accelerations[order]
        self.effort = torque - self._rotor * self.acceleration
        self.reported = self._report(self.effort)
        sag = self._compliance * (self.effort - friction)
        self.encoder = position + sag
        self.encoder_velocity = velocity + (sag - self._sag) / CONTROL_STEP
        self._sag = sag

    def follow(
        self, position: FloatArray, velocity: FloatArray, acceleration: FloatArray,
        duration: float,
    ) -> None:
        """Place the links in a prescribed state of motion, without drives.

        Args:
            position: Link angles, shape (n,) [rad].
            velocity: Link velocities, shape (n,) [rad/s].
            acceleration: Link accelerations, shape (n,) [rad/s²].
            duration: Time until the next state [s].

        """
        data, order = self._data, self._order
        for state, value in zip(self._state, (position, velocity, acceleration), strict=True):
            state[order] = value
        mujoco.mj_inverse(self._model, data)
        carried = data.qfrc_inverse[order] - self._rotor * acceleration
        friction = self.friction.step(velocity, duration, carried)
        self.position, self.velocity, self.acceleration = position, velocity, acceleration
        self.effort = carried + friction
        self.reported = self._report(self.effort)
        sag = self._compliance * carried
        self.encoder = position + sag
        self.encoder_velocity = velocity + (sag - self._sag) / duration
        self._sag = sag
        data.time += duration

    def _report(self, effort: FloatArray) -> FloatArray:
        """Return the effort that the drives report."""
        reported: FloatArray = effort + self._reported_rotor * self.acceleration
        if self._truth.effort_contains == 'all':
            return reported
        model, data = self._nominal
        order = self._order
        data.qpos[order], data.qvel[order] = self.position, self.velocity
        data.qacc[order] = self.acceleration
        mujoco.mj_inverse(model, data)
        own: FloatArray = data.qfrc_inverse[order] - self._rotor * self.acceleration
        return reported - own

    def wrench(self, frame: str) -> FloatArray:
        """Return the wrench that the distal side exerts on a force/torque sensor.

        Args:
            frame: Link of the sensor.

        Returns:
            Force [N], then torque about the sensor's origin [N·m], in the sensor frame, (6,).

        """
        # MuJoCo returns the wrench that the proximal side exerts on the distal one.
        wrench: FloatArray = -self._measured[self._wrenches[frame]]
        return wrench

    def inertial(self, frame: str) -> FloatArray:
        """Return the readings of an ideal IMU at a link.

        Returns:
            Specific force [m/s²], then angular velocity [rad/s], in the sensor frame, (6,).

        """
        inertial: FloatArray = self._measured[self._inertials[frame]]
        return inertial

    def link_pose(self, link: str) -> tuple[FloatArray, FloatArray]:
        """Return rotation (3, 3) and origin (3,) [m] of a link in the root frame."""
        body = self._body(link)
        rotation: FloatArray = self._data.xmat[body].reshape(3, 3).copy()
        return rotation, self._data.xpos[body].copy()

    def push(self, link: str, force: FloatArray, moment: FloatArray, duration: float) -> None:
        """Apply a wrench to a link for a limited time.

        Args:
            link: Link in whose frame the wrench is constant.
            force: Force [N], shape (3,).
            moment: Moment about the link's origin [N·m], shape (3,). A force at a point p of
                the link has the moment p × force.
            duration: Duration [s].

        Raises:
            ConfigurationError: The link does not exist, or a number is not finite.

        """
        wrench = np.concatenate((force, moment, [duration]))
        if not np.isfinite(wrench).all() or duration <= 0.0:
            raise ConfigurationError(
                f'A push on {link} has the wrench {wrench[:6].tolist()} for {duration} s; '
                'expected finite numbers and a positive duration.'
            )
        self._pushes.append(
            Push(self._body(link), np.asarray(force), np.asarray(moment), self.time + duration)
        )

    def _drives(self, angles: FloatArray) -> ServoDrive:
        """Return drives that hold the given angles, shape (n,) [rad]."""
        return ServoDrive(self._nominal[0], self._order, self.description.limits,
                          self._compliance, angles, CONTROL_STEP)

    def place(self, encoders: FloatArray) -> None:
        """Place the arm at rest, as a hand would that guides it; the drives hold it there.

        Args:
            encoders: Encoder readings [rad], shape (n,).

        """
        self._servo = self._drives(np.asarray(encoders, dtype=np.float64))
        self.rest_in(encoders)

    def point(self, link: str, xyz: Vector3) -> tuple[FloatArray, FloatArray]:
        """Return a point of a link in the root frame, and its derivatives by the joints.

        Args:
            link: The link.
            xyz: The point in its frame [m].

        Returns:
            The point, shape (3,) [m], and the Jacobian, shape (3, n) [m/rad].

        """
        rotation, origin = self.link_pose(link)
        point, jacobian = origin + rotation @ xyz, np.zeros((3, self._model.nv))
        mujoco.mj_jac(self._model, self._data, jacobian, None, point, self._body(link))
        return point, jacobian[:, self._order]

    def rest_in(self, encoders: FloatArray) -> None:
        """Place the arm at rest at the given encoder readings, without a motion.

        Args:
            encoders: Encoder readings [rad], shape (n,).

        """
        self._data.qvel[:] = 0.0
        self._data.qacc[:] = 0.0
        self.velocity, self.acceleration, self.encoder_velocity = np.zeros((3, self._order.size))
        self.friction.release()
        self._settle(np.asarray(encoders, dtype=np.float64))
        self.encoder = np.asarray(encoders, dtype=np.float64).copy()

    @property
    def loaded(self) -> bool:
        """Whether the load is attached."""
        return self._load is not None and bool(self._model.body_mass[self._load[0]] > 0.0)

    def attach_load(self) -> bool:
        """Attach the load of the truth; return False if there is none."""
        if self._load is None:
            return False
        body, mass, inertia = self._load
        self._model.body_mass[body] = mass
        self._model.body_inertia[body] = inertia
        self._pulled = self._truth.rope is not None
        return True

    def detach_load(self) -> bool:
        """Detach the load of the truth; return False if there is none."""
        if self._load is None:
            return False
        body = self._load[0]
        self._model.body_mass[body] = 0.0
        self._model.body_inertia[body] = 0.0
        self._pulled = False
        self._data.xfrc_applied[:] = 0.0
        return True

    def _places(self, one: str, other: str, frame: str) -> npt.NDArray[np.intp]:
        """Return the indices of two three-axis sensors in MuJoCo's sensor data, (6,)."""
        starts = [self._model.sensor(f'mjSENS_{kind}:{frame}').adr[0] for kind in (one, other)]
        return np.concatenate([start + np.arange(3) for start in starts])

    def _find_load(self) -> tuple[int, float, FloatArray] | None:
        if self._truth.load is None:
            return None
        body = int(self._model.body(LOAD_BODY).id)
        return body, float(self._model.body_mass[body]), self._model.body_inertia[body].copy()

    def _body(self, link: str) -> int:
        if link == self.description.root:
            return 0
        if link not in self.description.links:
            raise ConfigurationError(
                f'There is no link {link}; the robot has {", ".join(self.description.links)}.'
            )
        return int(self._model.body(link).id)

    def _settle(self, angles: FloatArray) -> None:
        """Set the state to rest at the encoder angles, with zero friction torque."""
        data = self._data
        sag = np.zeros_like(angles)
        for _ in range(4):
            data.qpos[self._order] = angles - sag
            mujoco.mj_inverse(self._model, data)
            sag = self._compliance * data.qfrc_inverse[self._order]
        self.position = angles - sag
        self.effort = data.qfrc_inverse[self._order]
        self._sag = sag
        self._servo.preload(self.effort)

    def _apply_wrenches(self) -> None:
        """Apply pushes and rope to the bodies' centres of mass, as MuJoCo expects."""
        data, rope, load = self._data, self._truth.rope, self._truth.load
        data.xfrc_applied[:] = 0.0
        now = data.time
        self._pushes = [push for push in self._pushes if push.until > now]
        for push in self._pushes:
            rotation = data.xmat[push.body].reshape(3, 3)
            force = rotation @ push.force
            lever = data.xpos[push.body] - data.xipos[push.body]
            data.xfrc_applied[push.body, :3] += force
            data.xfrc_applied[push.body, 3:] += rotation @ push.moment + np.cross(lever, force)
        if self._pulled and rope is not None and load is not None:
            body = self._body(load.parent or self.description.tip)
            end = data.xpos[body] + data.xmat[body].reshape(3, 3) @ rope.end
            force = rope.pulley - end
            force *= rope.tension / np.linalg.norm(force)
            data.xfrc_applied[body, :3] += force
            data.xfrc_applied[body, 3:] += np.cross(end - data.xipos[body], force)
