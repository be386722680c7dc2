# SPDX-License-Identifier: Apache-2.0
"""Estimation from bags, without a robot and without ROS."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
