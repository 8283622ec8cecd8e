"""Where to cut so that no transaction is merged in part, and what holds the cut back."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from airflow_cdc.model.archive.cut import AwaitedTransaction, CommittedTransaction, Cut, WaitingFiles, consistent_before, cut_of
from airflow_cdc.model.archive.transactions import OpenTransactions, Place, Transaction


def committed(number: int, *, whole: bool = True, ended: bool = True, archived: bool = True) -> CommittedTransaction:
    commit = number if archived else None
    return CommittedTransaction((number,) if ended else None, commit, commit, whole)


def test_nothing_waits_while_all_transactions_are_whole() -> None:
    assert consistent_before([]) is None
    assert consistent_before(committed(number) for number in range(5)) is None


def test_the_cut_stands_before_the_first_transaction_that_is_not_whole_and_later_whole_ones_wait_too() -> None:
    assert consistent_before([committed(1), committed(2, whole=False), committed(3)]) == 2
    assert consistent_before([committed(1), committed(2), committed(3, whole=False, ended=False)]) == 3


def test_a_transaction_of_which_nothing_but_its_end_is_there_holds_back_what_ended_after_it() -> None:
    assert consistent_before([committed(1), committed(2, whole=False, archived=False), committed(3)]) == 3
    # What is archived stands before it: nothing waits.
    assert consistent_before([committed(1), committed(2, whole=False, archived=False)]) is None


def test_what_ended_in_the_same_moment_as_one_that_lacks_events_goes_by_its_position() -> None:
    # MariaDB and Oracle give of an END only the time.
    ended_together = [CommittedTransaction((5,), number, number, whole) for number, whole in ((1, True), (2, False), (3, True))]
    assert consistent_before(ended_together) == 2


def test_a_transaction_that_a_restart_cut_in_two_is_not_split_by_the_cut() -> None:
    assert consistent_before([CommittedTransaction((1,), 1, 5, whole=True), committed(4, whole=False)]) == 1
    chain = [CommittedTransaction((1,), 1, 4, whole=True), CommittedTransaction((2,), 3, 9, whole=True), committed(8, whole=False)]
    assert consistent_before(chain) == 1


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[CommittedTransaction, set[int]]]:
    """Generate transactions in commit order, each with the commit positions of its archived events."""
    found = []
    for number in range(draw(st.integers(0, 8))):
        commits = draw(st.sets(st.integers(number * 2, number * 2 + 3), max_size=2))
        whole = bool(commits) and draw(st.booleans())
        ended = (number,) if whole or draw(st.booleans()) else None
        found.append((CommittedTransaction(ended, min(commits, default=None), max(commits, default=None), whole), commits))
    return found


@given(histories())
def test_below_the_cut_every_transaction_is_whole_and_none_is_there_in_part(history: list[tuple[CommittedTransaction, set[int]]]) -> None:
    bound = consistent_before(item for item, _ in history)
    first_lacking = min((item.ended for item, commits in history if not item.whole and not commits and item.ended), default=None)
    for item, commits in history:
        merged = {commit for commit in commits if bound is None or commit < bound}
        assert merged in (set(), commits), "a transaction is merged in part"
        assert item.whole or not merged, "an incomplete transaction is merged"
        assert not merged or first_lacking is None or item.ended is None or item.ended < first_lacking


# -- a connector's cut ---------------------------------------------------------------------------------------------


def known(*open_ones: Transaction, whole: dict[str, Place] | None = None, forgotten: Place | None = None) -> OpenTransactions:
    return OpenTransactions({item.key: item for item in open_ones}, whole or {}, 0, forgotten)


def lacking(key: str, number: int) -> Transaction:
    """Return a transaction of which some events are there and others are not."""
    return Transaction(key, {"dbo.a": 2}, {"s.dbo.a": ((1, 1),)}, 1, Place((number,), number, number))


def only_end(key: str, number: int) -> Transaction:
    return Transaction(key, {"dbo.a": 1}, {}, 1, Place((number,)))


def at(number: int) -> Place:
    return Place((number,), number, number)


def test_a_cut_names_what_it_waits_for_the_first_ones_first() -> None:
    without_end = Transaction("9", None, {"s.dbo.a": ((1, 1),)}, 1, Place(None, 20, 20))
    cut = cut_of("s", known(without_end, lacking("7", 10), whole={"8": at(15)}), applied_through=5)
    assert cut == Cut("s", is_proven=True, before=10, waits_for=(AwaitedTransaction("7", True), AwaitedTransaction("9", False)), awaited=2)
    assert list(cut.lines()) == [
        "s: cut before commit position 10; what stands there waits for transaction 7 (lacks events), 9 (its END is not archived)"
    ]


def test_what_the_tables_show_already_holds_nothing_back() -> None:
    # A run without the switch merged transaction 7 as far as it is there; only the next one is still to be waited for.
    assert cut_of("s", known(lacking("7", 10)), applied_through=10).before is None
    assert cut_of("s", known(lacking("7", 10), lacking("8", 12)), applied_through=11).before == 12
    # Of transaction 6 nothing but its END is there, and the tables show one that ended after it.
    passed = known(only_end("6", 8), lacking("8", 12), whole={"7": at(10)})
    assert cut_of("s", passed, applied_through=10).waits_for == (AwaitedTransaction("8", True),)


def test_a_cut_never_stands_below_what_is_applied() -> None:
    # A restart cut transaction 8 in two: the tables show the first half, and the cut need not spare the second.
    halved = {"8": Place((20,), 3, 18)}
    assert cut_of("s", known(lacking("9", 15), whole=halved), applied_through=None).before == 3
    assert cut_of("s", known(lacking("9", 15), whole=halved), applied_through=9).before == 15


def test_a_transaction_that_shows_nothing_but_its_begin_holds_nothing_back() -> None:
    assert cut_of("s", known(Transaction("1")), applied_through=None) == Cut("s", is_proven=True)


def test_behind_an_end_without_events_forgotten_transactions_may_stand_so_everything_waits() -> None:
    forgotten = known(only_end("6", 8), whole={"9": at(30)}, forgotten=at(20))
    assert cut_of("s", forgotten, applied_through=None).before == 0
    assert cut_of("s", forgotten, applied_through=15).before == 16
    # Unless the tables show the forgotten one already.
    assert cut_of("s", forgotten, applied_through=20).before is None


def test_cuts_and_waiting_files_come_back_from_json_as_they_were() -> None:
    cut = Cut("s", is_proven=True, before=2**80 + 1, waits_for=(AwaitedTransaction("7", False),), awaited=30)
    assert Cut.from_json(json.loads(json.dumps(cut.to_json()))) == cut
    assert cut.to_json()["before"] == str(2**80 + 1)
    assert Cut.from_json(Cut("s", is_proven=False).to_json()) == Cut("s", is_proven=False)
    files = WaitingFiles(3, {"t": ("a", "b")})
    assert WaitingFiles.from_json(json.loads(json.dumps(files.to_json()))) == files


def test_many_awaited_transactions_make_no_endless_line() -> None:
    cut = cut_of("s", known(*(lacking(f"{number:03}", number) for number in range(1, 100))), applied_through=None)
    assert (cut.awaited, len(cut.waits_for)) == (99, 20)
    (line,) = cut.lines()
    assert line.endswith("005 (lacks events) and 94 more")


def test_a_cut_by_position_proves_nothing_and_reports_that_and_one_that_holds_nothing_reports_nothing() -> None:
    (line,) = Cut("s", is_proven=False, before=7).lines()
    assert line == "s: cut before commit position 7, where one table's events end: no transaction topic proves it"
    assert list(Cut("s", is_proven=True).lines()) == []
