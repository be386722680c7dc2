# SPDX-License-Identifier: Apache-2.0
from .estimator import (
    COMPLIANCE as COMPLIANCE,
    estimate as estimate,
)
from .guidance import (
    Advice as Advice,
    advise as advise,
    read_guided as read_guided,
)
from .model import (
    mounted_of as mounted_of,
)
from .parameters import (
    ComplianceParameters as ComplianceParameters,
)
