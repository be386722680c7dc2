# SPDX-License-Identifier: Apache-2.0
"""What the launch files start, decided without `launch`: arguments in, processes out.

``arguments`` → ``robot_file`` (URDF text) and ``controllers`` → ``bringup`` or ``replay``, whose
``processes`` the files in `launch/` hand to ROS one by one.
"""
