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
    Selection as Selection,
    description_in as description_in,
    marks_in as marks_in,
    serialized as serialized,
)
from .bag_writer import (
    BagWriter as BagWriter,
)
from .bounded_buffer import (
    BUDGET as BUDGET,
    within_budget as within_budget,
)
from .decode import (
    Decoder as Decoder,
    Message as Message,
    SensorDecoder as SensorDecoder,
    State as State,
    stamp_of as stamp_of,
)
from .intake import (
    Channel as Channel,
    Intake as Intake,
    JointIntake as JointIntake,
    Recorded as Recorded,
    Take as Take,
    TrackerIntake as TrackerIntake,
    WrenchIntake as WrenchIntake,
    in_stamp_order as in_stamp_order,
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
from .mcap_writer import (
    McapWriter as McapWriter,
)
from .read_ahead import (
    ahead as ahead,
)
from .samples import (
    JointSamples as JointSamples,
    Recording as Recording,
    StreamCounts as StreamCounts,
    TrackerSamples as TrackerSamples,
    WrenchSamples as WrenchSamples,
    check_effort as check_effort,
    check_joints as check_joints,
    no_readings as no_readings,
)
from .silence import (
    Silence as Silence,
)
from .stamps import (
    SECOND as SECOND,
    StampGuard as StampGuard,
    Stamps as Stamps,
    from_seconds as from_seconds,
    to_seconds as to_seconds,
)
from .stream import (
    JointStateStream as JointStateStream,
    RecentPostures as RecentPostures,
    Stream as Stream,
    TrackerStream as TrackerStream,
    WrenchStream as WrenchStream,
    temperature_stream as temperature_stream,
)
from .subscription import (
    LIMIT as LIMIT,
    SPARSE as SPARSE,
    TEXT_LIMIT as TEXT_LIMIT,
    ConditionalGroup as ConditionalGroup,
    Subscriber as Subscriber,
    faults_of as faults_of,
    guarded as guarded,
    overload_hint as overload_hint,
    publisher_hint as publisher_hint,
    receiver as receiver,
    subscribe_text as subscribe_text,
)
