# SPDX-License-Identifier: Apache-2.0
"""A node with a fake procedure, and nodes spun in a thread with their own ROS context."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import rclpy
from diagnostic_msgs.msg import DiagnosticStatus, KeyValue
from rcl_interfaces.msg import SetParametersResult
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions
from rclpy.task import Future
from std_msgs.msg import String
from std_srvs.srv import Trigger

from robocal_ros.messages import qos


class FakeProcedure(LifecycleNode):
    """`run` takes ten timer periods and can be cancelled; method `bad` cannot be configured."""

    def __init__(self, context: Context) -> None:
        group = ReentrantCallbackGroup()
        super().__init__('fake_procedure', context=context, enable_rosout=False)
        self.declare_parameter('method', 'static_poses')
        self.declare_parameter('known_mass', 1.0)
        self.declare_parameter('tool_box', [0.0, 0.0, 0.0])
        self.add_on_set_parameters_callback(self._check)
        self._status = self.create_publisher(DiagnosticStatus, '~/status', qos.LATCHED)
        self._result = self.create_publisher(String, '~/result', qos.LATCHED)
        self.create_service(Trigger, '~/run', self._run, callback_group=group)
        self.create_service(Trigger, '~/cancel', self._cancel, callback_group=group)
        self.create_timer(0.02, self._tick, group)
        self._waiting: list[Future] = []
        self.cancelled = False

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        bad = self.get_parameter('method').value == 'bad'
        # Like the real nodes: the last passed result, which may be another method's.
        self._result.publish(String(data='kind: payload\nmethod: stale\n'))
        if bad:
            self._status.publish(DiagnosticStatus(
                level=DiagnosticStatus.ERROR, message='Cannot configure: no such frame.'))
        return TransitionCallbackReturn.FAILURE if bad else TransitionCallbackReturn.SUCCESS

    def _check(self, parameters: list[Any]) -> SetParametersResult:
        wrong = [p.value for p in parameters if p.name == 'method' and p.value == 'unknown']
        return SetParametersResult(successful=not wrong, reason='No such method.' if wrong else '')

    def _tick(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            future.set_result(None)

    async def _run(self, request: Trigger.Request, response: Trigger.Response) -> Any:
        self.cancelled = False
        for beat in range(10):
            if self.cancelled:
                response.message = 'Cancelled on request. The arm is held.'
                return response
            self._publish_status('moving', 10.0 * beat)
            future: Future = Future()
            self._waiting.append(future)
            await future
        method = self.get_parameter('method').value
        self._result.publish(String(data=f'kind: payload\nmethod: {method}\n'))
        response.success, response.message = True, f'{method} done.'
        self._publish_status('idle', 100.0)
        return response

    def _cancel(self, request: Trigger.Request, response: Trigger.Response) -> Any:
        self.cancelled = response.success = True
        return response

    def _publish_status(self, phase: str, progress: float) -> None:
        self._status.publish(DiagnosticStatus(message=f'{phase}.', values=[
            KeyValue(key='phase', value=phase), KeyValue(key='progress', value=f'{progress}')]))


class Running:
    """A node in its own ROS context, spun by a thread until `close`."""

    def __init__(self, domain: int, make: Callable[[Context], Node] = FakeProcedure) -> None:
        self._context = Context()
        rclpy.init(args=[], context=self._context, domain_id=domain,
                   signal_handler_options=SignalHandlerOptions.NO)
        self.node = make(self._context)
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self.node)
        self._open = True
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while self._open:
            self._executor.spin_once(timeout_sec=0.05)

    def close(self) -> None:
        self._open = False
        self._thread.join()
        self._executor.shutdown(timeout_sec=0.0)
        self.node.destroy_node()
        rclpy.try_shutdown(context=self._context)
