# SPDX-License-Identifier: Apache-2.0
from .arm_model import (
    LINK as LINK,
    LINK_UNITS as LINK_UNITS,
    PSEUDO_INERTIA as PSEUDO_INERTIA,
    ROTOR_SPREAD as ROTOR_SPREAD,
    URDF_FREEDOM as URDF_FREEDOM,
    ArmModel as ArmModel,
    body_covariance as body_covariance,
    expected_rotors as expected_rotors,
    identified_arm as identified_arm,
    identified_model as identified_model,
    link_covariance as link_covariance,
    link_parameters as link_parameters,
    parameter_names as parameter_names,
    physically_consistent as physically_consistent,
    pseudo_inertia as pseudo_inertia,
    urdf_model as urdf_model,
)
from .collision import (
    CollisionChecker as CollisionChecker,
    collision_geometry as collision_geometry,
    without_missing_meshes as without_missing_meshes,
)
from .friction_law import (
    DIRECTIONS as DIRECTIONS,
    LAW_PARAMETERS as LAW_PARAMETERS,
    LOAD_FACTOR_STD as LOAD_FACTOR_STD,
    ArmFriction as ArmFriction,
    SteadyFriction as SteadyFriction,
    bristle_springs as bristle_springs,
    friction_by_joint as friction_by_joint,
    law_slopes as law_slopes,
    without_zeros as without_zeros,
)
from .load import (
    alternative_loads as alternative_loads,
    body_of as body_of,
    carried_load as carried_load,
)
from .model import (
    RigidBodyInertia as RigidBodyInertia,
    Robot as Robot,
    identity_of as identity_of,
    link_of as link_of,
    parse_urdf as parse_urdf,
)
from .newton_euler import (
    NewtonEuler as NewtonEuler,
    arm_regressor as arm_regressor,
    gravity_changes as gravity_changes,
    level_axes as level_axes,
    moved_parameters as moved_parameters,
    on_leaning_base as on_leaning_base,
)
from .planning import (
    EffortLimits as EffortLimits,
    connect as connect,
)
from .sag import (
    SagCorrection as SagCorrection,
    compliance_by_joint as compliance_by_joint,
    deflected as deflected,
)
from .sensor_calibration import (
    CALIBRATION_NAMES as CALIBRATION_NAMES,
    SENSOR_CALIBRATION as SENSOR_CALIBRATION,
    calibration_matrix as calibration_matrix,
)
from .setup import (
    ARM as ARM,
    DRIVE_GAINS as DRIVE_GAINS,
    EFFORT_UNITS as EFFORT_UNITS,
    REVERSED as REVERSED,
    check_effort_unit as check_effort_unit,
    check_efforts as check_efforts,
    effort_factor as effort_factor,
    effort_scale as effort_scale,
    effort_scales as effort_scales,
    effort_units as effort_units,
    efforts_of as efforts_of,
    make_robot as make_robot,
    make_store as make_store,
    mesh_folders as mesh_folders,
    other_efforts as other_efforts,
    per_joint as per_joint,
    relative_covariance as relative_covariance,
    torque_factor as torque_factor,
    with_own_units as with_own_units,
)
from .torque_zero import (
    TORQUE_ZERO as TORQUE_ZERO,
    TorqueZero as TorqueZero,
    arm_zero as arm_zero,
    stored_zero as stored_zero,
    torque_zero as torque_zero,
    zero_names as zero_names,
)
from .trajectories import (
    Lspb as Lspb,
    MotionLimits as MotionLimits,
    Trajectory as Trajectory,
    quintic_path as quintic_path,
)
from .urdf import (
    FRAME_AXES as FRAME_AXES,
    PAYLOAD_LINK as PAYLOAD_LINK,
    formatted as formatted,
    least_inertia as least_inertia,
    read_urdf as read_urdf,
    with_frames as with_frames,
    with_friction as with_friction,
    with_links as with_links,
    with_payload as with_payload,
    without_payload as without_payload,
)
