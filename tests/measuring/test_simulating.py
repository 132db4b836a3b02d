"""A queue, processes and one device: how long that takes."""

import pytest
from measured_book.measuring.simulating import Piece, simulate


def test_the_longest_first_and_the_tail_counts():
    pieces = [Piece(seconds) for seconds in (1.0, 4.0, 2.0, 2.0)]
    assert simulate(pieces, 1) == pytest.approx(9)
    assert simulate(pieces, 2) == pytest.approx(5)  # 4 + 1 beside 2 + 2
    assert simulate(pieces, 8) == pytest.approx(4)
    assert simulate([], 3) == 0


def test_an_order_goes_before_length():
    late = Piece(4.0, order=1)
    assert simulate([late, Piece(1.0), Piece(1.0)], 2) == pytest.approx(5)
    assert simulate([Piece(4.0), Piece(1.0), Piece(1.0)], 2) == pytest.approx(4)


def test_so_many_of_an_order_are_at_work_at_once_while_others_are_ready():
    pieces = [*[Piece(1.0)] * 4, *[Piece(2.0, device=1.0, order=1)] * 2]
    assert simulate(pieces, 2) == pytest.approx(6)  # 2 without the device, then 4 of it
    assert simulate(pieces, 2, {0: 1}) == pytest.approx(4)
    assert simulate([Piece(1.0)] * 4, 2, {0: 1}) == pytest.approx(2)  # nothing else is ready


def test_one_device_does_no_more_than_it_can():
    half = [Piece(2.0, device=0.5)] * 4
    assert simulate(half, 2) == pytest.approx(4)
    assert simulate(half, 4) == pytest.approx(4)  # the device is busy from beginning to end
    assert simulate([*half, Piece(3.0)], 5) == pytest.approx(4)  # others are not slowed
    assert simulate([Piece(2.0, device=1.0), Piece(2.0, device=1.0)], 2) == pytest.approx(4)


def test_what_waits_comes_after_one_of_the_sets_that_it_waits_for():
    search = [Piece(1.0, part_of="a"), Piece(2.0, part_of="a"), Piece(9.0, part_of="b")]
    after_a = Piece(1.0, after=(frozenset({"a"}),))
    assert simulate([*search[:2], after_a], 4) == pytest.approx(3)
    either = Piece(10.0, after=(frozenset({"a"}), frozenset({"b"})))
    assert simulate([*search, either], 4) == pytest.approx(12)
    both = Piece(10.0, after=(frozenset({"a", "b"}),))
    assert simulate([*search, both], 4) == pytest.approx(19)
    no_wait = Piece(10.0, after=(frozenset({"b"}), frozenset()))
    assert simulate([*search, no_wait], 4) == pytest.approx(10)


def test_what_never_comes_and_no_process_are_named():
    with pytest.raises(ValueError, match="1 pieces wait for what never comes"):
        simulate([Piece(1.0), Piece(1.0, after=(frozenset({"a"}),))], 2)
    with pytest.raises(ValueError, match="expected at least one process, got 0"):
        simulate([], 0)
