# SPDX-License-Identifier: Apache-2.0
"""External wrench: how hard, and where, the arm is pushed, on any link between two sensors."""
