"""A file below what was applied is late, or of another life of its topic, as its positions and times prove."""

from __future__ import annotations

import pytest

from airflow_cdc.model.look.moved_files import KnownLog, LogSpan
from airflow_cdc.model.position.epochs import Epochs
from airflow_cdc.model.position.lives import LANES
from airflow_cdc.model.position.position import EPOCH

ONE_EPOCH = KnownLog({0: 100, LANES: 200}, 200, Epochs())
# Lane 0 entered epoch 1 at offset 50, when the connector's clock stood at 1,000; the log is at commit 30 since.
RESTORED = KnownLog({0: EPOCH + 30}, EPOCH + 30, Epochs({"0": ((50, 1),)}, {1: 1000}))
# The topic was created again as the source was restored: its second life is of epoch 1 from the first offset on.
BOTH = KnownLog({0: 90, LANES: EPOCH + 30}, EPOCH + 30, Epochs({str(LANES): ((0, 1),)}, {1: 1000}))


@pytest.mark.parametrize(
    ("lowest", "highest", "shift"),
    [(201, 300, 1), (150, 190, 0), (200, 250, 0), (20, 100, -1)],
    ids=["above all", "late in the newest life", "it meets what was applied", "late in the life before"],
)
def test_in_one_epoch_positions_prove_it(lowest: int, highest: int, shift: int) -> None:
    assert ONE_EPOCH.shift(LogSpan(lowest, highest), LANES, 0) == shift


@pytest.mark.parametrize(
    ("span", "offset", "shift"),
    [
        (LogSpan(31, 40, 2000, 2010), 0, 1),
        # Late, and processed before the log went back: its positions lie above those of today.
        (LogSpan(80, 90, 500, 600), 0, 0),
        (LogSpan(10, 20, 1100, 1200), 60, 0),
        # Processed in the newest epoch, at offsets of the one before, yet behind others of it: the two contradict each other.
        (LogSpan(10, 20, 1100, 1200), 0, None),
        (LogSpan(31, 40), 0, None),
        (LogSpan(31, 40, 2000, 2010), 60, 1),
    ],
    ids=["a new life", "late of the epoch before", "late of this one", "a contradiction", "no times", "a new life at offsets of this one"],
)
def test_behind_a_log_that_went_back_times_are_asked_too(span: LogSpan, offset: int, shift: int | None) -> None:
    assert RESTORED.shift(span, 0, offset) == shift


def test_a_late_file_is_of_the_life_before_where_the_newest_is_younger_than_it() -> None:
    assert BOTH.shift(LogSpan(80, 90, 500, 600), LANES, 20) == -1
    assert BOTH.shift(LogSpan(20, 25, 1100, 1200), LANES, 20) == 0


def test_where_no_time_of_an_epoch_is_known_nothing_is_proven() -> None:
    untimed = KnownLog({0: EPOCH + 30}, EPOCH + 30, Epochs({"0": ((50, 1),)}))
    assert untimed.shift(LogSpan(31, 40, 2000, 2010), 0, 0) is None
