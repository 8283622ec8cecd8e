"""One value of every kind of state document, and together every field set to something else than its default.

The lakes beside this file hold them, each as one version wrote it. A version that adds a field adds a sample, and its own lake; the
samples of earlier lakes stay as they are.
"""

from __future__ import annotations

from typing import Any

from airflow_cdc.model.archive.archived_files import ArchivedFile, FileFormat
from airflow_cdc.model.archive.completeness import (
    ArchivedOffsets,
    FileOffsets,
    OffsetGap,
    OffsetOverlap,
    OffsetReport,
    PartitionOffsets,
    Run,
)
from airflow_cdc.model.archive.cut import AwaitedTransaction, Cut, WaitingFiles
from airflow_cdc.model.archive.looked import FolderLook, Looked
from airflow_cdc.model.archive.set_aside import UNREADABLE, SetAsideFile
from airflow_cdc.model.archive.survey import OffsetHoles, RecordLayout, Replaced, Survey, TopicShape
from airflow_cdc.model.archive.transactions import (
    Lacking,
    LogStart,
    OpenTransactions,
    Place,
    Transaction,
    TransactionLedger,
    TransactionReport,
)
from airflow_cdc.model.errors import RejectReason
from airflow_cdc.model.flow.column_origin import Origin, TypeReport
from airflow_cdc.model.flow.new_topics import HeldTopic
from airflow_cdc.model.flow.source_schema import SourceColumn, SourceSchema
from airflow_cdc.model.position.epochs import Epochs, FileEpochs
from airflow_cdc.model.position.lives import LANES, LifeSpan
from airflow_cdc.model.position.position import EPOCH, Position
from airflow_cdc.model.position.reach import Reach
from airflow_cdc.model.position.snapshot import Snapshot, SnapshotChoice, SnapshotDecision
from airflow_cdc.model.pull.compared_rows import OpenRow
from airflow_cdc.model.report.apply_report import ApplyReport, FlowOutcome, FlowStatus
from airflow_cdc.model.report.batch_report import BatchReport, EventCounts, RowCounts
from airflow_cdc.model.report.foreign_change import ForeignChange
from airflow_cdc.model.report.maintenance import Action, FlowMaintenance, MaintenanceReport, TableKind, TableMaintenance
from airflow_cdc.model.report.reprocessing import FlowReprocess, ReprocessReport
from airflow_cdc.model.report.retyping import FlowRetype, Retyped, RetypeReport
from airflow_cdc.model.report.verification import Standing, TableVerification, VerifyReport
from airflow_cdc.model.state.announced_versions import AnnouncedVersions
from airflow_cdc.model.state.archived_schema import ArchivedSchema
from airflow_cdc.model.state.checkpoint import FlowCheckpoint
from airflow_cdc.model.state.comparison import FlowComparison
from airflow_cdc.model.state.lease import Holder, LeaseFile
from airflow_cdc.model.state.ledger import FolderSeen, Ledger
from airflow_cdc.model.state.microbatch import FilePart, HeldFile, Microbatch, PlanPosition
from airflow_cdc.model.state.rebuild_note import RebuildNote

ARCHIVE = "s3://bucket/archive"
LAKE = "s3://bucket/lake"
FLOW = "shop.public.orders"
TABLE = f"{LAKE}/{FLOW}"
_BIG = 2**80 + 1
"""More than a JSON reader keeps that takes numbers for floating-point ones."""
_DECIMAL = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}}
_SCHEMA = '{"type":"struct","fields":[{"type":"int32","optional":false,"field":"id"}]}'
_FIRST = f"{FLOW}/partition=0/{FLOW}+0+0000000000.json.gz"
_LATE = "exports/Bestellungen é.json"

_FILES = (
    ArchivedFile(_FIRST, 512, FLOW, 0, 0, f"{_FIRST}.keys", FileFormat.ARRAY, respelled=True, modified=1_764_000_000),
    ArchivedFile(_LATE, 2**41, _LATE),
)
_SHAPES = (
    TopicShape(_FIRST, FLOW, RecordLayout.VALUE, "c", "postgresql", 0, _SCHEMA, _SCHEMA, False, 7, 0, 9, "public.orders", True),
    TopicShape(_FIRST, FLOW, RecordLayout.VALUE, "tombstone", None, None, None, None, True, 1, None, None),
    TopicShape(_LATE, FLOW, RecordLayout.RECORD, "d", "postgresql", 1, '["id"]', _SCHEMA, True, 2, 5, 6, "public.orders", True),
)

SURVEYS = (
    Survey(ARCHIVE, 1, _FILES, _SHAPES, (OffsetHoles(_FIRST, FLOW, 0, ((3, 4), (6, 6)), 12),)),
    Survey(ARCHIVE, 2, (ArchivedFile(_LATE, 40, _LATE),), _SHAPES[2:], replaces=(Replaced(_LATE, 1, 2**41),)),
)
LEDGER = Ledger(
    2,
    {
        f"{FLOW}/partition=0": FolderSeen(_FIRST.rsplit("/", 1)[1], 1, 4_656_573_061_498_373_254, 512),
        "exports": FolderSeen("Bestellungen é.json", 1, 12_345_678_901_234_567_890, 40),
    },
    {FLOW: 1},
    {FLOW: ("c", "d", "tombstone")},
    {FLOW: 2},
    {1: frozenset({_LATE})},
    ("0123456789ab", "ba9876543210"),
)
LOOKED = Looked(
    1_764_000_000.25,
    {
        "": FolderLook(None, "", 0, 0, ("exports", FLOW)),
        "exports": FolderLook(1_763_999_000.5, "Bestellungen é.json", 2, 2**63 + 5, (), ("README.md",)),
    },
)

_POSTGRES, _EARLIER = Position(_BIG, 7, 3), Position(EPOCH + 12)
_TRANSACTION = Transaction("812", {"public.orders": 3, "public.lines": 0}, {FLOW: ((1, 1), (3, 3))}, 2, Place((_BIG, 1), _BIG, _BIG + 4))
_OPEN = OpenTransactions(
    {each.key: each for each in (_TRANSACTION, Transaction("813"))},
    {"811": Place((2**60,), 5, 6), "810": Place()},
    given_up=4,
    forgotten=Place((3,)),
    start=LogStart(1, 1_764_000_000_000),
)
TRANSACTIONS = TransactionLedger(2, {"shop": _OPEN, "billing": OpenTransactions()})
WAITING = WaitingFiles(2, {FLOW: (_LATE,), "shop.public.lines": ()})
SET_ASIDE = (
    SetAsideFile(_LATE, _LATE, UNREADABLE, "not a gzip file", "2026-11-20T08:00:00+00:00", ((_LATE, 40, 1_764_000_000.5), ("k", 1, None))),
)
HELD_TOPICS = {"odd/name": HeldTopic("odd/name", RejectReason.ILLEGAL_TOPIC_NAME, "Kafka takes no such name", 2, 9, 1, 4)}
ARCHIVED = ArchivedSchema(FLOW, 2, "postgresql", {"price": ({"field": "price", **_DECIMAL},)})

_LANE = str(LANES)
_DIGEST = "0123456789ab"
_SPANS = (LifeSpan(0, 1, 0, 0, 4), LifeSpan(0, 6, 1, 0, 3))
_FILE_EPOCHS = FileEpochs((("0", 5, 1), (_LANE, 0, 2)), _SPANS)
_EPOCHS = Epochs({"0": ((5, 1), (900, 2)), _LANE: ((0, 2),)}, {1: 1_764_000_000_000, 2: 1_765_000_000_000})
_SNAPSHOT = Snapshot(
    _POSTGRES,
    is_first=False,
    is_complete=True,
    is_initial=True,
    cut=_EARLIER,
    last_offsets={"0": 41, _LANE: 2},
    begins={"0": 0},
    passed=frozenset({_LANE, "0"}),
    doubt="a read was rejected",
    unconfirmed=3,
    tables=("public.orders", "public.orders_2025"),
    reads=40,
    decision=SnapshotChoice.KEEP,
)
_REACH = Reach(
    {"0": Position(5), "-": _EARLIER},
    {"0": _POSTGRES, "-": _EARLIER},
    {"0": 0},
    {"0": 2**54},
    frozenset({"0", "-"}),
    is_spread=True,
    outer_transactions={"0": ("7", "9")},
)
_PLAIN_OFFSETS = (FileOffsets(_FIRST, 0, 0, 9, ((0, 2), (5, 9)), 12), FileOffsets(_LATE, LANES, 5, 6, ((5, 6),)))
_HELD = (
    HeldFile(1, _FIRST, _BIG, 3, _BIG + 9, _FILE_EPOCHS),
    HeldFile(1, "whole", _BIG, 2),
    HeldFile(2, _LATE),
)
_PARTS = {_FIRST: FilePart("postgresql", 4, _BIG, 3, _BIG + 9, _FILE_EPOCHS), _LATE: FilePart("postgresql", before=_BIG)}
INTENTS = (
    Microbatch(FLOW, 1, ARCHIVE, _FILES, PlanPosition(2, 1), _SHAPES, _PLAIN_OFFSETS, _HELD, _PARTS, True, _DIGEST, {_FIRST: _SPANS}),
    Microbatch(FLOW, 2, ARCHIVE, (), PlanPosition(2, 1), (), decides=SnapshotDecision(_POSTGRES, SnapshotChoice.REPLACE)),
)

_GAP = OffsetGap(FLOW, LANES, 10, 12, _FIRST, _LATE)
_OFFSET_REPORT = OffsetReport({"0": 0}, (_GAP,), 3, (OffsetOverlap(0, 4, 6, _LATE),), 3, 1)
_TYPES = {
    "price": TypeReport("DECIMAL(12,2)", Origin.SCHEMA, "base64", "values look like hexadecimal numbers"),
    "note": TypeReport("STRING", Origin.VALUES),
}
REPORT = BatchReport(
    FLOW,
    1,
    2,
    2**41 + 512,
    EventCounts(36, 1, 2, 3, 4, 5, 6, 15),
    RowCounts(1, 2, 3),
    {"malformed_json": 15},
    {"0": _POSTGRES, "-": _EARLIER},
    1_764_000_000_123,
    {"public.orders": _EARLIER},
    _REACH,
    _SNAPSHOT,
    (Snapshot(_EARLIER, is_first=True),),
    _SNAPSHOT,
    8,
    _EPOCHS,
    -2,
    1,
    True,
    2,
    rows_missing=3,
    order_conflicts=4,
    columns_added=("price",),
    columns_renamed={"old": "new"},
    columns_widened=("id",),
    columns_as_text=("note",),
    columns_filled=("city",),
    misfits={"city": 2},
    types=_TYPES,
    table_version=17,
    merge_plan="merge: 3 rows",
    seconds=1.25,
    offsets=_OFFSET_REPORT,
)
DECISION_REPORT = BatchReport(FLOW, 2, 0, 0)
CHECKPOINT = FlowCheckpoint(
    FLOW,
    2,
    {ARCHIVE: PlanPosition(2, 1)},
    {"0": _POSTGRES},
    {"public.orders": _EARLIER},
    EventCounts(36, 1, 2, 3, 4, 5, 6, 15),
    TABLE,
    17,
    {ARCHIVE: _HELD},
    {ARCHIVE: ArchivedOffsets({0: PartitionOffsets(0, (Run(0, 2, 1, _FIRST, _LATE), Run(5, 9, 9, _FIRST, _FIRST)), 12)})},
    _REACH,
    _SNAPSHOT,
    (Snapshot(_EARLIER, is_first=True),),
    _SNAPSHOT,
    _EPOCHS,
    2,
    frozenset({"public.orders", "public.lines"}),
    1_764_000_000_123,
    {ARCHIVE: "0123456789ab"},
)
"""Not what the intents and reports give: what it is after them is the checkpoint's own test."""

COMMIT_METADATA: dict[str, Any] = {
    "application": f"{FLOW}:{_DIGEST}",
    "intent": INTENTS[0].digest,
    "seen_through": 16,
    "microbatch": 1,
    "files": 4,
}
"""Beside the report."""

SCHEMA = SourceSchema(
    FLOW,
    "postgresql",
    (
        SourceColumn("price", _DECIMAL, "numeric(12,2)"),
        SourceColumn("note", {}),
    ),
    ("id",),
    "catalogue of postgresql, connection shop",
    {"decimal.handling.mode": "precise"},
)

HOLDER = Holder("worker-1", 4711, "123456", "boot pid:[4026531836]", "merge 2026-11-20")
WRITTEN_AT = "2026-11-20T08:00:00+00:00"
LEASE = LeaseFile(FLOW, HOLDER, WRITTEN_AT, 60.0, renewals=0)
REBUILT = RebuildNote({"archive": ARCHIVE, "lake": LAKE, "as_of": "7/1/2"}, 2)
INCARNATION = "0123456789ab"
ANNOUNCED = AnnouncedVersions("scheduled__2026-11-20", {}, {FLOW: 17})
COMPARED = FlowComparison(
    FLOW,
    "scheduled__2026-11-20 1",
    1_795_945_723_116,
    1200,
    1199,
    ("ratio: double precision and double",),
    (OpenRow(940_079_632_237_576_323, 118_128_069_469_479_357, None, 0, 1_795_945_723_116),),
    is_cut=True,
    different=1,
    sample=({"side": "missing", "id": "7"},),
    verified_through=1_795_859_323_116,
    skipped="the table has no row for each key",
    error="Connection shop: the database does not answer or refuses: permission denied.",
)

_ERROR = {"type": "StateLostError", "message": "Gone.", "next_step": "Restore it.", "transient": False}
_OUTCOME = FlowOutcome(
    FLOW,
    FlowStatus.APPLIED,
    TABLE,
    (REPORT, DECISION_REPORT),
    _ERROR,
    (_GAP,),
    1,
    2,
    3,
    4,
    17,
    {"price": "DECIMAL(12,2)"},
    ("city",),
    (ForeignChange(16, "DELETE", "2026-11-20T08:00:00+00:00", "somebody", "repaired by version 17 (RESTORE)"),),
    True,
)
_MAINTAINED = TableMaintenance(TableKind.DELETE_MARKERS, TABLE, (Action.COMPACT, Action.VACUUM), 9, 1, 900, 100, 16, 17, 3, 2, 5, 8, 168.0)
_STANDING = Standing(TABLE, 17, 2, {"0": "7/1/2"})
_VERIFIED = TableVerification(
    FLOW, _STANDING, Standing("other", 1, 1), 9, 8, "ab", "cd", ("column x",), ("price",), 1, 2, 3, 4, ({"id": "1", "side": "extra"},), 5
)
_RETYPED = Retyped(FLOW, {"price": ("STRING", "DECIMAL(12,2)"), "note": (None, "STRING")}, (8, 9), (2, 1), True)
REPORTS = {
    "apply": ApplyReport(
        ARCHIVE,
        LAKE,
        (_OUTCOME, FlowOutcome("shop.public.lines", FlowStatus.UP_TO_DATE)),
        ("shop.transaction",),
        ("README.md",),
        _ERROR,
        (TransactionReport("shop", (Lacking("812", FLOW, 3, 2),), 1, 2, 3),),
        (Cut("shop", True, _BIG, (AwaitedTransaction("812", True),), 1), Cut("billing", False)),
        SET_ASIDE,
        tuple(HELD_TOPICS.values()),
    ),
    "maintain": MaintenanceReport(LAKE, True, (FlowMaintenance(FLOW, (_MAINTAINED,), 2, _ERROR),), _ERROR),
    "reprocess": ReprocessReport(ARCHIVE, LAKE, True, (FlowReprocess(FLOW, REPORT, (DECISION_REPORT,), _ERROR),), _ERROR),
    "retype": RetypeReport(ARCHIVE, LAKE, True, (FlowRetype(FLOW, _RETYPED, _ERROR),), _ERROR),
    "verify": VerifyReport(LAKE, f"{LAKE}-2", (_VERIFIED,), ("left",), ("right",), _ERROR),
}
