# SPDX-License-Identifier: Apache-2.0
from .adequacy import (
    LackOfFit as LackOfFit,
    combined_freedom as combined_freedom,
    lack_of_fit as lack_of_fit,
    likely_cause as likely_cause,
    structured_covariance as structured_covariance,
)
from .block_averages import (
    MAX_NOISE as MAX_NOISE,
    Blocks as Blocks,
    Channels as Channels,
    Kinematics as Kinematics,
    derivatives as derivatives,
    low_passed as low_passed,
)
from .effort_contents import (
    check_contents as check_contents,
)
from .least_squares import (
    Delay as Delay,
    LinearFit as LinearFit,
    autocorrelation_time as autocorrelation_time,
    find_delay as find_delay,
    orthonormal as orthonormal,
    scaled_inverse as scaled_inverse,
    solve as solve,
)
from .random_effects import (
    Effect as Effect,
    IntegratedFit as IntegratedFit,
    MixedFit as MixedFit,
    fit_mixed as fit_mixed,
    integrate as integrate,
)
from .ripple import (
    PERIODS as PERIODS,
    SLOW_RIPPLE as SLOW_RIPPLE,
    Ripple as Ripple,
    RippleRun as RippleRun,
    find_ripple as find_ripple,
    ripple_columns as ripple_columns,
    suspected_ripple as suspected_ripple,
    waves as waves,
)
from .selection import (
    d_optimal as d_optimal,
    grouped as grouped,
    short_tour as short_tour,
)
from .signals import (
    SLOWEST_SWEEP as SLOWEST_SWEEP,
    Sweep as Sweep,
    central_velocity as central_velocity,
    dwells as dwells,
    encoder_steps as encoder_steps,
    runs as runs,
    steady_sweeps as steady_sweeps,
)
