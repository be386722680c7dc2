# SPDX-License-Identifier: Apache-2.0
"""The table of methods against the parameter that chooses one of them."""

from robocal_ros.parameters import declarations
from robocal_ros.payload import PAYLOAD
from robocal_ros.payload.estimator import METHODS
from robocal_ros.payload.parameters import PayloadParameters


def test_the_table_holds_every_method_that_the_parameter_offers() -> None:
    (offered,) = (item.choices for item in declarations(PayloadParameters)
                  if item.name == 'method')
    assert tuple(METHODS) == offered


def test_the_frame_that_messages_name_may_be_none_of_the_urdf() -> None:
    values = PayloadParameters(method='static_poses', sensor_message_frame='tool0_controller')
    (sensor,) = PAYLOAD.needs(values).wrenches
    assert (sensor.frame, sensor.message_frame) == ('ft_wrist', 'tool0_controller')
