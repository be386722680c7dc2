# SPDX-License-Identifier: Apache-2.0
"""`sim_arm`: simulated arm with the interfaces of an arm under ros2_control.

The main loop advances the simulation, publishes, and runs the executor's callbacks in between;
simulated time is not driven by timers.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import rclpy
import xacro
from geometry_msgs.msg import WrenchStamped
from rcl_interfaces.msg import ParameterDescriptor, SetParametersResult
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.event_handler import PublisherEventCallbacks
from rclpy.exceptions import (
    InvalidParameterTypeException,
    InvalidParameterValueException,
    ParameterException,
)
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.publisher import Publisher
from rclpy.signals import SignalHandlerOptions
from sensor_msgs.msg import JointState
from std_srvs.srv import Trigger

from robocal_ros.errors import ConfigurationError, RobocalError
from robocal_ros.node import StopRequest
from robocal_ros.resources import share_directory
from robocal_sim.consumers import Consumers
from robocal_sim.controller import ControllerSettings
from robocal_sim.faults import parse_faults
from robocal_sim.model import Description, read_description
from robocal_sim.node_controller import ControllerFace
from robocal_sim.node_topics import (
    CLOCK_PERIOD,
    STATE_PERIOD,
    ClockTopic,
    ControllerStateTopic,
    SimArmTopics,
    publish_description,
)
from robocal_sim.pacing import Pacer
from robocal_sim.physics import CONTROL_STEP
from robocal_sim.simulator import ArmSimulator
from robocal_sim.streamed import StreamedCommands
from robocal_sim.truth import Cell, HiddenTruth, load_cell, load_truth

HOLD_TIME = 1.5
"""Wall time after the end of a goal before the process ends on request [s].

Ctrl-C of a launch file ends all processes at once: the node that moves the arm needs the arm to
hold it, to see it at rest, and to answer its caller.
"""

END_TIMEOUT = 4.0
"""Longest time from a request to end until the end [s]."""

CYCLE_STEPS = 2
"""Control steps between two turns of the clock topic and the executor."""

COMMAND_TIMEOUT = 2.0
"""Wall time that simulated time waits for the command of a controller in another process [s]."""

REMIND_AFTER = 0.02
"""Wall time after which that controller is told the time again [s]."""

REMIND_BY = 1.0e-9
"""Lead of the clock that a reminder adds [s].

A thread that sleeps by rclcpp's clock can miss the message that ends its sleep, and is woken by
none with the same time. The lead stays, for controllers count their next cycle from the last one.
"""

SERVE_PERIOD = 5.0e-3
"""Wall time between two turns of the executor at full simulation speed [s]."""

WAIT_SLICE = 1.0e-3
"""Single wait of the executor [s]; limits the delay of a stop request.

It is the same for all waits: with another timeout, rclpy begins its round anew, with the suspended
tasks, and never comes to requests while a goal is executed.
"""
WITHOUT_TRUTH = 'none'
"""Value of truth_file for an ideal arm: no tool, friction, compliance or F/T sensors."""

_TYPES = Parameter.Type


@dataclass(frozen=True)
class _Parameter:
    """Parameter: name, default (a type if there is none) and description."""

    name: str
    default: Any
    description: str
    run_time: bool = False


PARAMETERS = (
    _Parameter('robot_description', '', 'URDF text; empty: the default arm'),
    _Parameter('joints', _TYPES.STRING_ARRAY, 'controlled joints; unset: all movable joints'),
    _Parameter('controller', 'joint_trajectory_controller', 'name of the controller'),
    _Parameter('command_interfaces', ['position'], 'position, or position and effort'),
    _Parameter('command_rate', 0.0, 'rate of the commands on joint_commands, of a controller in '
                                    'another process [Hz]; 0: the own controller'),
    _Parameter('truth_file', '', 'hidden truth (YAML); empty: of the default arm; none: ideal'),
    _Parameter('cell_file', '', 'sensor noise (YAML); empty: none'),
    _Parameter('seed', 0, 'seed of all noise and of drawn biases'),
    _Parameter('real_time_factor', 1.0, 'simulated over wall time; 0: as fast as the '
                                        'subscribers keep up'),
    _Parameter('free_run_factor', 10.0, 'largest real-time factor for real_time_factor 0 '
                                        'without subscribers; 0: none'),
    _Parameter('max_lead', 0.1, 'largest lead over the slowest joint_states subscriber [s]'),
    _Parameter('joint_states_rate', 500.0, 'rate of joint states and sensors [Hz]'),
    _Parameter('initial_positions', _TYPES.DOUBLE_ARRAY, 'initial posture [rad]'),
    _Parameter('strict', False, 'reject unsafe goals that the real controller accepts'),
    _Parameter('allow_partial_joints_goal', False, 'accept goals for a subset of the joints'),
    _Parameter('decelerate_on_cancel', False, 'decelerate on cancel, not stop in one cycle'),
    _Parameter('cancel_deceleration', 2.0, 'deceleration of the fastest joint [rad/s²]'),
    _Parameter('constraints.goal_time', 0.0, 'time past the end to reach the goal [s]; 0: any'),
    _Parameter('constraints.stopped_velocity_tolerance', 0.0,
               'velocity tolerance at the goal [rad/s]; 0: none'),
    _Parameter('push_duration', 0.5, 'duration of a push [s]', run_time=True),
    _Parameter('socket', '', 'socket to which ~/guide brings the ball', run_time=True),
    _Parameter('fault', 'none', 'active faults: name or name:argument, comma-separated',
               run_time=True),
    _Parameter('controller_active', True, 'whether the controller is active', run_time=True),
    _Parameter('speed_scaling', 1.0, 'speed scaling of trajectories, 0 to 1', run_time=True),
)


class SimArm(Node):
    """Node of the simulated arm: parameters, topics, action, services and main loop."""

    def __init__(
        self, overrides: Sequence[Parameter[Any]] = (), namespace: str | None = None
    ) -> None:
        """Build the simulation from the parameters.

        Args:
            overrides: Parameter values, for use in process.
            namespace: Namespace, for use in process.

        Raises:
            RobocalError: A parameter, the robot or a file is not valid.

        """
        super().__init__('sim_arm', namespace=namespace, parameter_overrides=list(overrides))
        for parameter in PARAMETERS:
            self.declare_parameter(
                parameter.name,
                parameter.default,
                ParameterDescriptor(description=parameter.description,
                                    read_only=not parameter.run_time),
            )
        urdf = self._value('robot_description') or default_description()
        description = read_description(urdf, self._optional('joints'))
        self._simulator = self._build_simulator(description)
        self._pacer = Pacer(
            self._value('real_time_factor'),
            self._value('free_run_factor'),
            self._value('max_lead'),
        )
        self._topics = SimArmTopics(self, description.joints, self._simulator.truth)
        # A controller in another process is woken by the clock in each of its cycles.
        streamed = self._simulator.streamed
        self._clock_topic = ClockTopic(self, CLOCK_PERIOD if streamed is None else 0.0)
        self._description_publisher = publish_description(self, urdf)
        self._group = ReentrantCallbackGroup()
        self._consumers = Consumers(
            self, self._topics.joint_states, 0.25 * self._value('max_lead'),
            self._pacer.acknowledge, self._pacer.remove, self._group)
        self._controller_face: ControllerFace | None = None
        if streamed is None:
            name = self._value('controller')
            self._state_topic = ControllerStateTopic(self, name, description.joints)
            self._controller_face = ControllerFace(self, name, self._simulator, self._group)
        else:
            self.create_subscription(
                JointState, 'joint_commands', partial(self._on_command, streamed), 10,
                callback_group=self._group)
        self._create_services()
        self._clock_lead = 0.0
        self._last_clock = self._simulator.now
        self._published = self._last_clock
        self._state_due = 0.0
        self._served = 0.0
        self._moved = self._asked = -float('inf')
        self._apply_run_time({item.name: self._value(item.name)
                              for item in PARAMETERS if item.run_time})
        self.add_on_set_parameters_callback(self._on_parameters)

    def create_publisher(self, *args: Any, **kwargs: Any) -> Publisher[Any]:
        """Create a publisher without rclpy's default event callbacks.

        These log subscriptions with an incompatible quality of service, which the subscriber logs
        too. Their two waitables per publisher take two thirds of each turn of the executor.
        """
        return super().create_publisher(
            *args, event_callbacks=PublisherEventCallbacks(use_default_callbacks=False), **kwargs)

    def run(self, executor: SingleThreadedExecutor, stopped: Callable[[], bool]) -> None:
        """Simulate until `stopped` returns true; this node must be in `executor`."""
        while not stopped():
            self._advance()
            self._serve(executor, stopped)

    def may_end(self) -> bool:
        """Return whether the process may end, once it was requested: no node needs the arm."""
        wall = time.monotonic()
        if self._asked < 0.0:
            self._asked = wall
        return wall - self._moved > HOLD_TIME or wall - self._asked > END_TIMEOUT

    def _value(self, name: str) -> Any:
        return self.get_parameter(name).value

    def _optional(self, name: str) -> list[Any]:
        """Return a list parameter; empty if unset."""
        parameter = self.get_parameter_or(name, None)
        return [] if parameter is None or parameter.value is None else list(parameter.value)

    def _build_simulator(self, description: Description) -> ArmSimulator:
        start = self._optional('initial_positions')
        return ArmSimulator(
            description,
            self._truth(description),
            load_cell(self._value('cell_file')) if self._value('cell_file') else Cell(),
            self._settings(description.joints),
            seed=self._value('seed'),
            rate=self._value('joint_states_rate'),
            command_rate=self._value('command_rate'),
            start=np.array(start, dtype=np.float64) if start else None,
        )

    def _truth(self, description: Description) -> HiddenTruth:
        """Load the truth; without a file, that of the default arm or an ideal one."""
        path = self._value('truth_file')
        if path:
            return HiddenTruth() if path == WITHOUT_TRUTH else load_truth(path)
        default = load_truth(share_directory() / 'config' / 'sim' / 'hidden_truth.yaml')
        first = next(iter(default.joints))
        for prefix in (name.removesuffix(first) for name in description.joints
                       if name.endswith(first)):
            own = default.prefixed(prefix)
            if set(own.joints) == set(description.joints):
                return own
        return HiddenTruth()

    def _settings(self, joints: Sequence[str]) -> ControllerSettings:
        tolerances = {
            kind: tuple(
                float(self.declare_parameter(
                    f'constraints.{joint}.{kind}', 0.0,
                    ParameterDescriptor(description=f'{kind} tolerance [rad]; 0: none',
                                        read_only=True),
                ).value)
                for joint in joints
            )
            for kind in ('trajectory', 'goal')
        }
        return ControllerSettings(
            strict=self._value('strict'),
            allow_partial_joints_goal=self._value('allow_partial_joints_goal'),
            decelerate_on_cancel=self._value('decelerate_on_cancel'),
            cancel_deceleration=self._value('cancel_deceleration'),
            path_tolerance=tolerances['trajectory'],
            goal_tolerance=tolerances['goal'],
            stopped_velocity_tolerance=self._value('constraints.stopped_velocity_tolerance'),
            goal_time=self._value('constraints.goal_time'),
            command_interfaces=tuple(self._value('command_interfaces')),
        )

    def _create_services(self) -> None:
        """Create the push subscription and the load services."""
        group = self._group
        self.create_subscription(WrenchStamped, '~/push', self._on_push, 10, callback_group=group)
        self.create_service(Trigger, '~/attach_load', self._on_attach_load, callback_group=group)
        self.create_service(Trigger, '~/detach_load', self._on_detach_load, callback_group=group)
        self.create_service(Trigger, '~/guide', self._on_guide, callback_group=group)
        self.create_service(Trigger, '~/photograph', self._on_photograph, callback_group=group)

    # Main loop.

    def _advance(self) -> None:
        """Simulate one cycle and publish its readings."""
        simulator = self._simulator
        missing = simulator.faults.of('joint_missing')
        misframed = simulator.faults.of('ft_misframed')
        for _ in range(simulator.cycle or CYCLE_STEPS):
            readings = simulator.step()
            self._topics.publish(readings, missing, misframed)
            if readings.joints:
                self._published = readings.joints[-1].time
            if self._controller_face is not None and simulator.action_tick:
                self._controller_face.on_action_tick()
        if self._executing or (simulator.streamed is not None and simulator.streamed.moving):
            self._moved = time.monotonic()
        now = simulator.now
        if now < self._last_clock:
            self._pacer.reset()
            self._state_due = now
        self._last_clock = now
        self._clock_topic.publish(now + self._clock_lead)
        if self._controller_face is not None and now >= self._state_due - 0.5 * CONTROL_STEP:
            self._state_due = now + STATE_PERIOD
            self._state_topic.publish(now, simulator.controller)

    @property
    def _executing(self) -> int:
        """Number of goals that the own controller executes."""
        return 0 if self._controller_face is None else self._controller_face.executing

    def _serve(self, executor: SingleThreadedExecutor, stopped: Callable[[], bool]) -> None:
        """Run callbacks until simulated time may advance."""
        wall = time.monotonic()
        due = wall + self._pacer.delay(self._simulator.now, wall)
        if due <= wall and wall - self._served > SERVE_PERIOD:
            # One turn for each suspended task, and one for a request.
            for _ in range(self._executing + 1):
                executor.spin_once(timeout_sec=0.0)
            self._served = time.monotonic()
        while not stopped() and (wall := time.monotonic()) < due:
            executor.spin_once(timeout_sec=WAIT_SLICE)
        self._consumers.look(wall)
        self._consumers.ask(self._published, wall)
        self._wait_for_consumers(executor, stopped)
        if self._simulator.streamed is not None:
            self._wait_for_command(self._simulator.streamed, executor, stopped)

    def _wait_for_command(
        self, streamed: StreamedCommands, executor: SingleThreadedExecutor,
        stopped: Callable[[], bool],
    ) -> None:
        """Wait for the command of this cycle, from the first one until they end."""
        since = reminded = time.monotonic()
        while not stopped() and streamed.started and streamed.awaited:
            executor.spin_once(timeout_sec=WAIT_SLICE)
            wall = time.monotonic()
            if wall - reminded > REMIND_AFTER:
                self._clock_lead += REMIND_BY
                self._clock_topic.publish(self._simulator.now + self._clock_lead)
                reminded = wall
            if wall - since > COMMAND_TIMEOUT:
                streamed.started = False
                self.get_logger().warning(
                    f'No command on joint_commands for {COMMAND_TIMEOUT:g} s: the arm holds its '
                    'posture, and simulated time does not wait until the next one comes.')

    def _wait_for_consumers(
        self, executor: SingleThreadedExecutor, stopped: Callable[[], bool]
    ) -> None:
        newest = self._published
        since = time.monotonic()
        while not stopped() and self._pacer.held_up(newest):
            executor.spin_once(timeout_sec=WAIT_SLICE)
            wall = time.monotonic()
            self._consumers.look(wall)
            self._consumers.ask(newest, wall)
            for name in self._pacer.drop_silent(newest, wall, since):
                self.get_logger().warning(
                    f'{name} does not respond; simulated time does not wait for it until it '
                    'responds again.'
                )

    # Callbacks.

    @staticmethod
    def _on_command(streamed: StreamedCommands, message: JointState) -> None:
        # Efforts are empty where the hardware has no such command.
        streamed.take(dict(zip(message.name, message.position, strict=False)),
                      dict(zip(message.name, message.effort, strict=False)))

    def _on_push(self, message: WrenchStamped) -> None:
        force, torque = message.wrench.force, message.wrench.torque
        try:
            self._simulator.physics.push(
                message.header.frame_id,
                np.array((force.x, force.y, force.z)),
                np.array((torque.x, torque.y, torque.z)),
                self._value('push_duration'),
            )
        except ConfigurationError as error:
            self.get_logger().error(str(error))

    def _on_attach_load(self, _request: Any, response: Any) -> Any:
        response.success = self._simulator.physics.attach_load()
        response.message = self._load_message('attached', response.success)
        return response

    def _on_detach_load(self, _request: Any, response: Any) -> Any:
        response.success = self._simulator.physics.detach_load()
        response.message = self._load_message('detached', response.success)
        return response

    def _on_guide(self, _request: Any, response: Any) -> Any:
        return _measured(response, lambda: [self._simulator.guide(self._value('socket'))])

    def _on_photograph(self, _request: Any, response: Any) -> Any:
        return _measured(response, self._simulator.photograph)

    def _load_message(self, done: str, success: bool) -> str:
        # The user knows the load's mass; its other parameters stay hidden.
        load = self._simulator.truth.load
        if not success or load is None:
            return 'The hidden truth has no load; add one to the truth file.'
        return f'Load of {load.mass:g} kg {done}.'

    def _on_parameters(self, parameters: Sequence[Parameter[Any]]) -> SetParametersResult:
        known = {item.name for item in PARAMETERS if item.run_time}
        changes = {item.name: item.value for item in parameters if item.name in known}
        try:
            self._apply_run_time(changes)
        except ConfigurationError as error:
            return SetParametersResult(successful=False, reason=str(error))
        return SetParametersResult(successful=True)

    def _apply_run_time(self, values: dict[str, Any]) -> None:
        controller = self._simulator.controller
        if not 0.0 < values.get('push_duration', 1.0) < float('inf'):
            raise ConfigurationError(
                f'The parameter push_duration is {values["push_duration"]}; expected seconds.'
            )
        if self._controller_face is not None:
            if 'speed_scaling' in values:
                self._controller_face.set_speed_scaling(values['speed_scaling'])
        elif (values.get('speed_scaling', 1.0) != 1.0
              or not values.get('controller_active', True)
              or 'controller_' in values.get('fault', '')):
            raise ConfigurationError(
                'The parameters speed_scaling and controller_active and the faults controller_* '
                'are those of the own controller; with command_rate above 0, the arm follows '
                'another one. Ask that one.')
        if 'fault' in values:
            frames = [item.frame for item in self._simulator.truth.force_torque_sensors]
            faults = parse_faults(values['fault'], controller.joints, frames)
            if faults != self._simulator.faults:
                self.get_logger().info(f"fault '{values['fault']}' at {self._simulator.now:.3f} s")
            self._simulator.set_faults(faults)
        if 'controller_active' in values:
            if values['controller_active']:
                controller.activate()
            else:
                controller.deactivate()


def _measured(response: Any, measure: Callable[[], Iterable[Iterable[float]]]) -> Any:
    """Fill a response with the rows of a measurement as CSV lines, or why there are none."""
    try:
        response.message = '\n'.join(
            ','.join(f'{value:.10g}' for value in row) for row in measure())
        response.success = True
    except RobocalError as error:
        response.success, response.message = False, str(error)
    return response


def default_description(**arguments: str) -> str:
    """Return the URDF of the default arm.

    Args:
        **arguments: Arguments of the xacro file, such as `mount_rpy='0 1.57 0'`.

    """
    path = share_directory() / 'urdf' / 'robocal_arm.urdf.xacro'
    text: str = xacro.process_file(str(path), mappings=arguments).toxml()
    return text


def main(stop_request: StopRequest | None = None) -> int:
    """Run the node until a stop request; return the exit code."""
    stop_request = stop_request or StopRequest()
    rclpy.init(signal_handler_options=SignalHandlerOptions.NO)
    node = None
    try:
        node = SimArm()
        executor = SingleThreadedExecutor()
        executor.add_node(node)
        node.run(executor, lambda: stop_request.received and node.may_end())
        return 0
    except RobocalError as error:
        sys.stderr.write(f'sim_arm: {error}\n')
        return 1
    except (InvalidParameterTypeException, InvalidParameterValueException,
            ParameterException) as error:
        sys.stderr.write(f'sim_arm: {error}. Correct the parameter.\n')
        return 1
    finally:
        if node is not None:
            node.destroy_node()
        rclpy.try_shutdown()


if __name__ == '__main__':
    sys.exit(main())
