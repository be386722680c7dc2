# SPDX-License-Identifier: Apache-2.0
"""The robot: URDF to Pinocchio, collision, limits, trajectories; no ROS."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
