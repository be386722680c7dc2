# SPDX-License-Identifier: Apache-2.0
"""What each method reads."""

import pytest

from robocal_ros.errors import ConfigurationError
from robocal_ros.parameters import checked
from robocal_ros.payload import PAYLOAD
from robocal_ros.payload.parameters import PayloadParameters


def test_the_frame_that_messages_name_may_be_none_of_the_urdf() -> None:
    values = PayloadParameters(method='static_poses', sensor_message_frame='tool0_controller')
    (sensor,) = PAYLOAD.needs(values).wrenches
    assert (sensor.frame, sensor.message_frame) == ('ft_wrist', 'tool0_controller')


@pytest.mark.parametrize('method', ['two_plane', 'static_poses', 'excitation'])
def test_a_sign_that_is_none_is_refused_whatever_the_method(method: str) -> None:
    with pytest.raises(ConfigurationError, match='sensor_sign must be 1.0 or -1.0, got 0.5'):
        checked(PayloadParameters, {'method': method, 'sensor_sign': 0.5})
