# SPDX-License-Identifier: Apache-2.0
from .estimator import (
    COMPLIANCE as COMPLIANCE,
    estimate as estimate,
)
from .guidance import (
    Advice as Advice,
    advise_on as advise_on,
)
from .parameters import (
    ComplianceParameters as ComplianceParameters,
)
