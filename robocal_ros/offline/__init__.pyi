# SPDX-License-Identifier: Apache-2.0
from .estimation import (
    OfflineEstimation as OfflineEstimation,
)
from .parameter_files import (
    read_parameters as read_parameters,
)
