# SPDX-License-Identifier: Apache-2.0
"""Between ROS 2 and the core: parameters, streams, the arm client, the lifecycle base."""
