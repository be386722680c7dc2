# SPDX-License-Identifier: Apache-2.0
"""The simulated arm without ROS: truth → model → physics → sensors, and its controller.

An implementation of its own, by MuJoCo, that shares nothing with `core`: a mistake in one shows
against the other.
"""
