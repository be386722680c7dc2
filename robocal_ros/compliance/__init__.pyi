# SPDX-License-Identifier: Apache-2.0
from .estimator import (
    COMPLIANCE as COMPLIANCE,
    estimate as estimate,
)
from .parameters import (
    ComplianceParameters as ComplianceParameters,
)
