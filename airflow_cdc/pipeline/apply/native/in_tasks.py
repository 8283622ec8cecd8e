"""Fold a microbatch in the tasks of one Spark job: what the driver has no room for, where Spark has a cluster.

The events of a key lie in one Kafka partition. So the files fall into groups that share no partition, each task folds a group and stages
its row changes, and no row goes back into the JVM before the merge. That no key is in two groups is checked.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from airflow_cdc.model.errors import first_line
from airflow_cdc.pipeline.apply.native.bounds import is_for_task
from airflow_cdc.pipeline.apply.native.fold import folding
from airflow_cdc.pipeline.apply.native.for_spark import StagedFold, changes_for_spark, fields_of, write_changes
from airflow_cdc.pipeline.apply.native.handed_over import HandedOver
from airflow_cdc.pipeline.decode.decode_events import Decoder
from airflow_cdc.pipeline.microbatch.microbatch_run import MicrobatchRun
from airflow_cdc.pipeline.spark import sql
from airflow_cdc.pipeline.spark.task_job import TasksFailedError, call_in_tasks


@dataclass(frozen=True, kw_only=True)
class _Work:
    """What a task needs."""

    decoder: Decoder
    archive: str
    groups: Sequence[Sequence[str]]
    """Paths of files."""
    fields: Mapping[str, Any]
    folder: str


def fold_in_tasks(run: MicrobatchRun, decoder: Decoder) -> StagedFold:
    """Return each key's row change, folded by executors.

    :raises HandedOver: as :func:`airflow_cdc.pipeline.apply.native.fold.folding`; also for a group of files that is too large for a task,
        keys in several groups, and executors that cannot run it.
    """
    if decoder.splits_key_changes:
        raise HandedOver("keys of the flow's own, in a microbatch that tasks fold")
    groups = groups_of(decoder)
    files = {file.path: file for file in decoder.files}
    if not all(is_for_task(run.microbatch.archive, [files[path] for path in group]) for group in groups):
        raise HandedOver("the files of one partition are larger than a task takes")
    folder = run.new_staging_folder("latest")
    fields = fields_of(decoder.columns.sql_types)
    work = _Work(
        decoder=decoder,
        archive=run.microbatch.archive,
        groups=groups,
        fields=fields,
        folder=run.staged_at(folder),
    )
    outcomes = _outcomes(run.spark, work)
    if reason := next((str(outcome["reason"]) for outcome in outcomes if outcome["reason"]), ""):
        raise HandedOver(reason)
    changes = run.read_staged([f"{folder}/{outcome['file']}" for outcome in outcomes], StructType.fromJson(dict(fields)))
    if len(groups) > 1 and _has_key_twice(changes, decoder.columns.keys):
        raise HandedOver("a key has events in several partitions")
    return StagedFold(changes, joins_events=any(outcome["joins_events"] for outcome in outcomes))


def groups_of(decoder: Decoder) -> list[list[str]]:
    """Return the paths of files in groups that share no partition, each in the decoder's order."""
    by_name = {file.path: file.partition for file in decoder.files}
    partitions: dict[str, set[int | None]] = {path: set() for path in by_name}
    for shape in decoder.shapes:
        # Values do not name their partition.
        partitions[shape.file].add(by_name[shape.file] if shape.partition is None else shape.partition)
    groups: list[tuple[set[int | None], list[str]]] = []
    for file in decoder.files:
        own, paths = partitions[file.path], [file.path]
        for group in [group for group in groups if group[0] & own]:
            groups.remove(group)
            own, paths = own | group[0], group[1] + paths
        groups.append((own, paths))
    order = {file.path: place for place, file in enumerate(decoder.files)}
    return sorted((sorted(paths, key=order.__getitem__) for _, paths in groups), key=lambda paths: order[paths[0]])


def _outcomes(spark: SparkSession, work: _Work) -> list[dict[str, Any]]:
    try:
        return call_in_tasks(spark, partial(_fold_group, work), len(work.groups))
    except TasksFailedError as error:
        raise HandedOver(f"the executors cannot fold: {error}") from error


def _fold_group(work: _Work, number: int) -> Iterator[dict[str, Any]]:
    """Fold a group of files; runs in a task."""
    # A task that is tried again, or twice at once, writes another file; only one of them is named.
    file = f"{uuid.uuid4().hex}.parquet"
    group = frozenset(work.groups[number])
    files = [each for each in work.decoder.files if each.path in group]
    own = replace(work.decoder, files=files, shapes=[shape for shape in work.decoder.shapes if shape.file in group])
    reason, joins = "", False
    try:
        with folding(own, work.archive) as fold:
            write_changes(fold.stream(changes_for_spark(fold.how)), work.fields, folder=work.folder, file=file)
            joins = fold.joins_events
    except HandedOver as why:
        reason = str(why)
    except OSError as error:
        reason = f"the staging folder cannot be written from an executor: {first_line(error)}"
    yield {"file": file, "reason": reason, "joins_events": joins}


def _has_key_twice(changes: DataFrame, keys: Sequence[str]) -> bool:
    return bool(changes.groupBy(*map(sql.name, keys)).count().filter("count > 1").head(1))
