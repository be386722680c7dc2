# SPDX-License-Identifier: Apache-2.0
"""Payload identification: mass, centre of mass and, when excited, inertia of tool or load."""
