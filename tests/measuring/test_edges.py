"""A search whose best rate lies at the end of its grid goes on beyond that end, or needs a reason."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from demo_room import Inline, Room
from measured_book.evidence.results import read_result
from measured_book.ladder import AROUND, LONGEST
from measured_book.measuring import jobs
from measured_book.measuring.jobs import EdgeError, Search, reasons_at_edge, tuned
from measured_book.measuring.scheduler import measure_all
from measured_book.rooms.ladder_further.measure import LATE
from measured_transformer.models.config import Config
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training import tuned_table, tuning
from measured_transformer.training.tuned_table import PACKAGED, losses_of
from measured_transformer.training.tuning import Tuned

RATES = (0.001, 0.002, 0.004)
TASK = Reversal(vocab=4, length=4)


def a_search(name: str = "arm") -> Search:
    return Search(name, Config(vocab=4), TASK, rates=RATES, seeds=[1], steps=1)


def answering(loss: Callable[[float], float]) -> tuple[jobs.Choose, list[tuple[float, ...]]]:
    """What answers searches from a known loss, and the grids that it is asked."""
    asked: list[tuple[float, ...]] = []

    def choose(search: Search) -> Tuned:
        grid = sorted(search.rates)
        asked.append(tuple(grid))
        best = min(grid, key=loss)
        at_edge = (search.name,) if best in (grid[0], grid[-1]) else ()
        return Tuned({search.name: best}, {}, at_edge, reused=False)

    return choose, asked


@pytest.mark.parametrize(
    ("best", "grids"),
    [
        (0.002, [RATES]),
        (0.008, [RATES, (*RATES, 0.008), (*RATES, 0.008, 0.016)]),
        (0.0005, [RATES, (0.0005, *RATES), (0.00025, 0.0005, *RATES)]),
    ],
)
def test_a_search_goes_on_until_its_best_rate_lies_inside(
    best: float, grids: list[tuple[float, ...]]
) -> None:
    choose, asked = answering(lambda rate: abs(math.log(rate / best)))
    with jobs.choosing(choose):
        assert tuned(a_search()) == best
    assert asked == grids


def test_a_rate_at_the_end_is_refused_unless_a_reason_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    choose, asked = answering(lambda rate: -rate)
    with jobs.choosing(choose):
        with pytest.raises(EdgeError, match=r"arm inside its grid, got 0\.032, at the end of"):
            tuned(a_search())
        assert len(asked) == 1 + jobs.FURTHER
        monkeypatch.setattr(jobs, "reasons_at_edge", lambda: {"arm": "it is as bad everywhere"})
        asked.clear()
        assert tuned(a_search()) == RATES[-1]
        assert len(asked) == 1


def test_measuring_makes_the_wider_search_and_trains_at_what_that_finds(
    room: Room, inline: Inline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (tuned_table, tuning):
        monkeypatch.setattr(module, "PACKAGED", tmp_path / "tuned.jsonl")
    room.write(SEARCHING)
    one = room.measurement("rate")
    report = measure_all([one], executor=inline, progress="nothing", say=lambda _: None)
    assert report.failed == {}
    assert report.written == ["demo.rate"]
    lines = [json.loads(line) for line in (tmp_path / "tuned.jsonl").read_text().splitlines()]
    grids = sorted([rate for rate, _ in line["losses"]["arm"]] for line in lines)
    assert len(grids) > 1  # such small rates do not train
    widest = max(grids, key=len)
    found = read_result(room.results / "rate.json").variables["rate"][1]
    assert set(found) <= set(widest[1:-1])


SEARCHING = '''
"""A room whose grid is too low."""
from measured_book.measuring import measurement
from measured_book.measuring.jobs import Search, job, tuned
from measured_transformer.models.config import Config
from measured_transformer.tasks.reversal import Reversal

CONFIG = Config(vocab=4, d_model=8, n_heads=2, n_layers=1)
TASK = Reversal(vocab=4, length=4)


def trainings(seed):
    rate = tuned(Search("arm", CONFIG, TASK, rates=(1e-4, 1e-3), seeds=[1], steps=6))
    return {"it": job(CONFIG, TASK, seed, steps=2, learning_rate=rate)}


@measurement(seeds=1, trainings=trainings)
def rate(seed, runs):
    """The rate that it is trained at."""
    return {"rate": runs["it"].rates[0]}
'''


# The table that comes with the library ------------------------------------------------------------


def kept() -> Mapping[str, list[dict[float, float]]]:
    """For each arm the mean losses of its searches, by rate."""
    found = defaultdict(list)
    for line in tuned_table.lines_of(PACKAGED):
        for arm, rows in losses_of(line).items():
            found[arm].append({rate: float(np.mean(each)) for rate, each in rows.items()})
    return found


def is_at_edge(losses: Mapping[float, float]) -> bool:
    best = min(losses, key=lambda rate: losses[rate])
    return best in (min(losses), max(losses))


def test_no_kept_search_ends_at_the_edge_of_its_grid_without_a_reason() -> None:
    """Each that does was gone on with, to a wider grid, with its best rate inside."""
    loose = []
    for arm, searches in kept().items():
        for losses in filter(is_at_edge, searches):
            wider = [other for other in searches if set(losses) < set(other)]
            if not any(not is_at_edge(other) for other in wider):
                loose.append(arm)
    assert set(loose) == set(reasons_at_edge())


def test_where_a_reason_is_given_the_rate_hardly_matters() -> None:
    for arm in reasons_at_edge():
        for losses in kept()[arm]:
            assert max(losses.values()) < 1.01 * min(losses.values()), arm


def test_each_arm_is_tried_at_six_rates_or_more() -> None:
    """The longest runs of the ladder try three, round the best of six after a third of their length."""
    tried = {arm: min(map(len, searches)) for arm, searches in kept().items()}
    longest = {f"ladder-32-{LONGEST}-{one}".replace(" ", "-"): len(AROUND[one]) for one in AROUND}
    longest |= {f"ladder-32-{LONGEST}-{one}": len(LATE) for one in ("averaged", "muon")}
    assert min(longest.values()) >= 3
    assert {a: n for a, n in tried.items() if n < longest.get(a, 6)} == {}
