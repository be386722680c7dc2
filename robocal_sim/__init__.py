# SPDX-License-Identifier: Apache-2.0
"""The simulated arm: a robot, known to the product over ROS alone."""
