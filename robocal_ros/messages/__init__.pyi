# SPDX-License-Identifier: Apache-2.0
from . import conversions as conversions, decode as decode, marks as marks, qos as qos
from .bag import (
    JOINT_STATE as JOINT_STATE,
    MARKS as MARKS,
    POINT as POINT,
    POSE as POSE,
    STRING as STRING,
    TEMPERATURE as TEMPERATURE,
    WRENCH as WRENCH,
    Bag as Bag,
    Channel as Channel,
    Selection as Selection,
    ahead as ahead,
    description_in as description_in,
    in_stamp_order as in_stamp_order,
    marks_in as marks_in,
    serialized as serialized,
)
from .bag_writer import (
    BagWriter as BagWriter,
    McapWriter as McapWriter,
)
from .checks import (
    SECOND as SECOND,
    StampGuard as StampGuard,
    Stamps as Stamps,
    from_seconds as from_seconds,
    to_seconds as to_seconds,
)
from .decode import (
    Message as Message,
    SensorDecoder as SensorDecoder,
    State as State,
    stamp_of as stamp_of,
)
from .intake import (
    Intake as Intake,
    JointIntake as JointIntake,
    Recorded as Recorded,
    TrackerIntake as TrackerIntake,
    WrenchIntake as WrenchIntake,
    temperature_intake as temperature_intake,
)
from .marks import (
    TOPIC as TOPIC,
    Mark as Mark,
    Span as Span,
    Spans as Spans,
    StationaryInterval as StationaryInterval,
    last_run as last_run,
)
from .samples import (
    BUDGET as BUDGET,
    JointSamples as JointSamples,
    Recording as Recording,
    StreamCounts as StreamCounts,
    TrackerSamples as TrackerSamples,
    WrenchSamples as WrenchSamples,
    check_effort as check_effort,
    check_joints as check_joints,
    check_range as check_range,
    no_readings as no_readings,
    within_budget as within_budget,
)
from .stream import (
    LIMIT as LIMIT,
    SPARSE as SPARSE,
    TEXT_LIMIT as TEXT_LIMIT,
    ConditionalGroup as ConditionalGroup,
    JointStateStream as JointStateStream,
    RecentPostures as RecentPostures,
    Silence as Silence,
    Stream as Stream,
    Subscriber as Subscriber,
    TrackerStream as TrackerStream,
    WrenchStream as WrenchStream,
    faults_of as faults_of,
    guarded as guarded,
    note_fault as note_fault,
    overload_hint as overload_hint,
    publisher_hint as publisher_hint,
    receiver as receiver,
    subscribe_text as subscribe_text,
    temperature_stream as temperature_stream,
)
