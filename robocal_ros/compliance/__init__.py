# SPDX-License-Identifier: Apache-2.0
"""Joint compliance calibration."""
