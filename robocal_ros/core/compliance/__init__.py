# SPDX-License-Identifier: Apache-2.0
"""Joint compliance: how far joints give way under a known load, and what to do about it."""

from robocal_ros.core.compliance.deflection import SagCorrection, compliance_by_joint

__all__ = ['SagCorrection', 'compliance_by_joint']
