# SPDX-License-Identifier: Apache-2.0
"""The result of a calibration, its file and its report."""
