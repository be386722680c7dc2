# SPDX-License-Identifier: Apache-2.0
"""Leveling: the tool upright, its point held, by the least turn."""

from robocal_ros.core.leveling.following import Obstacle, Way
from robocal_ros.core.leveling.plan import LevelingPlanner, LevelingSettings, LevelPlan
from robocal_ros.core.leveling.reference import reference_axis
from robocal_ros.core.leveling.refusal import LevelingRefusal, Refusal
from robocal_ros.core.leveling.target import LevelTarget, level_targets, tilt
from robocal_ros.core.leveling.task import LevelingTask
from robocal_ros.core.leveling.tool import Tool
from robocal_ros.core.leveling.verify import LevelCheck, check_level, tilt_by_imu

__all__ = [
    'LevelCheck', 'LevelPlan', 'LevelTarget', 'LevelingPlanner', 'LevelingRefusal',
    'LevelingSettings', 'LevelingTask', 'Obstacle', 'Refusal', 'Tool', 'Way', 'check_level',
    'level_targets', 'reference_axis', 'tilt', 'tilt_by_imu',
]
