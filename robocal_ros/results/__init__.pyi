# SPDX-License-Identifier: Apache-2.0
from . import provenance as provenance, wording as wording
from .provenance import (
    CHECK as CHECK,
    DRIVE_GAINS as DRIVE_GAINS,
    Inputs as Inputs,
    Load as Load,
    absence as absence,
    choose as choose,
    stale_inputs as stale_inputs,
    stale_text as stale_text,
    with_inputs as with_inputs,
)
from .report import (
    LAYOUT as LAYOUT,
    Advice as Advice,
    Panel as Panel,
    Step as Step,
    comparison as comparison,
    environment as environment,
    figure as figure,
    plural as plural,
    rendered as rendered,
    report_html as report_html,
)
from .result import (
    Z95 as Z95,
    CalibrationResult as CalibrationResult,
    Check as Check,
    Efforts as Efforts,
    Fit as Fit,
    Parameter as Parameter,
    RobotIdentity as RobotIdentity,
    Series as Series,
    State as State,
    Verdict as Verdict,
    grouped as grouped,
    rms as rms,
    spread as spread,
)
from .store import (
    ResultStore as ResultStore,
    check_writable as check_writable,
    default_directory as default_directory,
    from_yaml as from_yaml,
    read_result as read_result,
    to_yaml as to_yaml,
    write_result as write_result,
)
from .wording import (
    reading as reading,
)
