# SPDX-License-Identifier: Apache-2.0
from . import run as run, storage as storage
from .bags import (
    Request as Request,
    find_bags as find_bags,
)
from .catalogue import (
    ESTIMATED as ESTIMATED,
    SKIPPED as SKIPPED,
    Catalogue as Catalogue,
    Query as Query,
)
from .changes import (
    History as History,
    courses as courses,
)
from .dashboard import (
    write_dashboard as write_dashboard,
)
from .run import (
    Summary as Summary,
)
