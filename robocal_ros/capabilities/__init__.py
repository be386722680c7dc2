# SPDX-License-Identifier: Apache-2.0
"""Each capability without ROS: its parameters, what it reads, and how samples become a result.

Nodes and command line share it, so that live, replayed and offline give the same numbers.
"""
