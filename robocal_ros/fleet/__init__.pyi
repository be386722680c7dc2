# SPDX-License-Identifier: Apache-2.0
from . import run as run, storage as storage
from .bags import (
    find_bags as find_bags,
)
from .catalogue import (
    ESTIMATED as ESTIMATED,
    SKIPPED as SKIPPED,
    Catalogue as Catalogue,
    Query as Query,
)
from .changes import (
    courses as courses,
)
from .dashboard import (
    write_dashboard as write_dashboard,
)
from .histories import (
    History as History,
)
from .request import (
    Request as Request,
)
from .run import (
    Summary as Summary,
)
