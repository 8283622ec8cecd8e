"""Lanes and epochs of located records, as SQL."""

from __future__ import annotations

from airflow_cdc.model.columns import FILE, LINE, ORDINAL, PARTITION
from airflow_cdc.model.position.epochs import Epochs
from airflow_cdc.model.position.lives import LANES, Lives
from airflow_cdc.model.position.position import EPOCH
from airflow_cdc.model.position.reach import UNKNOWN_PARTITION
from airflow_cdc.pipeline.spark import sql


def lane(partition: str, lives: Lives) -> str:
    """Return the SQL of a record's lane (:mod:`airflow_cdc.model.position.lives`).

    :param partition: SQL of its Kafka partition.
    """
    whole: dict[tuple[int, int], list[str]] = {}
    parted: list[str] = []
    for path, spans in lives.items():
        for number in sorted({span.partition for span in spans}):
            ours = [span for span in spans if span.partition == number]
            if len(ours) == 1:
                whole.setdefault((ours[0].life, number), []).append(path)
                continue
            here = f"{FILE} = {sql.text(path)} AND {partition} = {number}"
            # The last span that begins at or before the line.
            parted += [f"WHEN {here} AND {LINE} >= {span.first_line} THEN {span.life}" for span in sorted(ours, reverse=True)]
    cases = [
        f"WHEN {partition} = {number} AND {FILE} IN ({', '.join(map(sql.text, paths))}) THEN {life}"
        for (life, number), paths in sorted(whole.items())
        if life
    ]
    cases += parted
    return f"({partition} + {LANES} * CASE {' '.join(cases)} ELSE 0 END)" if cases else partition


def in_epoch(commit: str, epochs: Epochs, *, at: str = f"{ORDINAL}.offset") -> str:
    """Return the SQL of a commit with its epoch, as positions store it (:mod:`airflow_cdc.model.position.epochs`).

    :param commit: SQL of the source's own commit.
    :param at: SQL of the record's offset.
    """
    cases = [
        f"WHEN {is_lane(name)} AND {at} >= {offset} THEN {epoch * EPOCH}BD"
        for name, places in sorted(epochs.begins.items())
        for offset, epoch in sorted(places, reverse=True)
        if epoch
    ]
    return f"({commit} + CASE {' '.join(cases)} ELSE 0BD END)" if cases else commit


def is_lane(name: str) -> str:
    """Return the SQL that is true for a record of a lane; ``name``: as in reports."""
    return f"{PARTITION} IS NULL" if name == UNKNOWN_PARTITION else f"{PARTITION} <=> {int(name)}"
