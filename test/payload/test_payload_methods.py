# SPDX-License-Identifier: Apache-2.0
"""What each method reads."""

from robocal_ros.payload import PAYLOAD
from robocal_ros.payload.parameters import PayloadParameters


def test_the_frame_that_messages_name_may_be_none_of_the_urdf() -> None:
    values = PayloadParameters(method='static_poses', sensor_message_frame='tool0_controller')
    (sensor,) = PAYLOAD.needs(values).wrenches
    assert (sensor.frame, sensor.message_frame) == ('ft_wrist', 'tool0_controller')
