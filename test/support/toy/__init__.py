# SPDX-License-Identifier: Apache-2.0
"""A capability of its own: the mean posture of the arm."""

from __future__ import annotations

from robocal_ros.registry import Capability, Procedure

TOY = Capability('posture_average', 'support.toy', (
    Procedure('posture', kind='posture', estimator='support.toy.estimator:POSTURE',
              then=('Compare it with the drawing.', 'robocal show posture')),))
