# SPDX-License-Identifier: Apache-2.0
"""Leveling of the tool."""
