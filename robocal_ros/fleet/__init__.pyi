# SPDX-License-Identifier: Apache-2.0
from . import run as run, storage as storage
from .bags import (
    find_bags as find_bags,
)
from .catalogue import (
    ESTIMATED as ESTIMATED,
    SKIPPED as SKIPPED,
    Catalogue as Catalogue,
    rows_from as rows_from,
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
from .review import (
    Urgency as Urgency,
)
from .run import (
    Summary as Summary,
)
