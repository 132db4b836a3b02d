"""What measuring would take on a GPU, told without training anything."""

from pathlib import Path

import pytest
from demo_room import MEASURE, Inline, Room
from measured_book.evidence.results import read_result
from measured_book.measuring import Search, planning
from measured_book.measuring.__main__ import main
from measured_book.measuring.measurement import measurements_of
from measured_book.measuring.planning import BEFORE, as_text, plan
from measured_book.measuring.scheduler import measure_all
from measured_transformer.training import ensemble, loop

SEARCHED = """

from measured_book.measuring import Search, tuned

RATES = (1e-3, 1e-2, 1e-1)


def chosen(seed):
    search = Search("arm", shaped("pre", 8), TASK, RATES, [1, 11], 7)
    return {"it": job(shaped("pre", 8), TASK, seed, steps=7, learning_rate=tuned(search))}


def dropped(seed):
    config = Config(vocab=4, d_model=8, n_heads=2, n_layers=2, dropout=0.1)
    return {"it": job(config, TASK, seed, steps=5, learning_rate=RATE)}


@measurement(seeds=2, trainings=chosen)
def searched(seed, runs):
    return {"loss": runs["it"].losses[-1]}


@measurement(seeds=4, trainings=dropped)
def alone(seed, runs):
    return {"loss": runs["it"].losses[-1]}


@measurement(seeds=4, trainings=dropped)
def again(seed, runs):
    return {"loss": runs["it"].losses[-1]}
"""


@pytest.fixture
def planned(room: Room, monkeypatch: pytest.MonkeyPatch) -> planning.Plan:
    def trained(*_: object, **__: object) -> None:
        raise AssertionError("a plan trains nothing")

    monkeypatch.setattr(loop, "train", trained)
    monkeypatch.setattr(ensemble, "train_stacked", trained)
    room.write(MEASURE + SEARCHED)
    return plan(measurements_of("demo").values())


def counts(found: planning.Plan, *, search: bool) -> list[tuple[int, int, list[int]]]:
    return sorted(
        (one.steps, len(one.seeds), one.parts)
        for one in found.stacks.values()
        if one.search is search
    )


def test_runs_that_differ_in_their_seeds_alone_are_one_stack(planned: planning.Plan):
    assert counts(planned, search=False) == [
        (4, 3, [3]),  # an arm each
        (4, 3, [3]),
        (
            5,
            4,
            [1, 1, 1, 1],
        ),  # dropout cannot be stacked; what two measurements ask for counts once
        (7, 2, [2]),
    ]
    assert len(planned.looks) == 3 + 2 + 2 + 4 + 4


def test_searches_are_in_it_a_stack_for_each_rate(planned: planning.Plan):
    assert counts(planned, search=True) == [(7, 2, [2])] * 3


def test_searches_that_were_made_already_count_as_well(room: Room, inline: Inline, monkeypatch):
    room.write(MEASURE + SEARCHED)
    before = counts(plan(measurements_of("demo").values()), search=True)
    monkeypatch.setattr(
        Search, "known", lambda self: type("Known", (), {"rates": {self.name: 0.01}})()
    )
    found = plan(measurements_of("demo").values())
    assert counts(found, search=True) == before
    assert Search.known.__name__ == "<lambda>", "what was put in its place is gone"


def test_what_reads_a_corpus_that_is_not_here_is_left_out(
    room: Room, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("MEASURED_DATA_DIR", str(tmp_path))
    room.write(
        MEASURE + SEARCHED.replace("seeds=2, trainings", 'seeds=2, corpora=("a",), trainings')
    )
    found = plan(measurements_of("demo").values())
    assert found.left_out == ["demo.searched"]
    assert counts(found, search=True) == []
    assert "left out, as their corpus is not here: demo.searched" in as_text(found)
    (tmp_path / "a").touch()
    assert plan(measurements_of("demo").values()).left_out == []


def test_stacking_over_rates_would_make_one_of_three(planned: planning.Plan):
    merged = [one for one in planned.merged() if one.search]
    assert [(one.steps, one.parts) for one in merged] == [(7, [6])]
    assert planned.took(planned.merged()).seconds < planned.took().seconds


def test_what_is_trained_at_a_rate_waits_for_its_search_and_looks_wait_for_what_they_look_at(
    planned: planning.Plan,
):
    pieces = planned.pieces("at once")
    names = {told for told, one in planned.stacks.items() if one.search}
    (chosen,) = [p for p in pieces if p.after and names <= set().union(*p.after)]
    assert chosen.after == (frozenset(names),)
    assert [p.part_of for p in pieces].count(chosen.part_of) == 1
    looks = [p for p in pieces if not p.part_of]
    assert len(looks) == len(planned.looks)
    assert sum(chosen.part_of in one for p in looks for one in p.after) == 2  # of its two seeds
    assert {p.device for p in looks} == {0.0}


def test_kernels_of_one_process_after_another_take_longer_than_side_by_side(
    planned: planning.Plan,
):
    took = planned.took()
    one, many = (planned.simulated(number, "at once") for number in (1, 16))
    looks = sum(look.seconds for look in planned.looks)
    assert one == pytest.approx(BEFORE + took.seconds + looks)
    assert BEFORE + planned.longest() < many < one
    in_turns = planned.simulated(16, "in turns")
    assert many <= in_turns <= one
    assert in_turns >= BEFORE + took.kernels + took.products


def test_a_look_takes_what_the_kept_result_says(room: Room, inline: Inline):
    one, other = room.all
    assert planning.look_seconds(one) == planning.A_LOOK
    measure_all(room.all, executor=inline, progress="nothing", say=lambda _: None)
    kept = [read_result(room.results / f"{each.name}.json") for each in room.all]
    losses, draws = (each.provenance["seconds"] / len(each.seeds) for each in kept)
    assert planning.look_seconds(one) == pytest.approx(planning.LOOK_SHARE * losses)
    assert planning.look_seconds(other) == pytest.approx(draws)


def test_more_members_than_a_stack_may_have_are_several_stacks(planned: planning.Plan):
    one = next(one for one in planned.stacks.values() if one.stacks)
    one.seeds = set(range(ensemble.LARGEST_STACK + 3))
    assert one.parts == [34, 33]


def test_the_command_says_it_in_words(room: Room, capsys):
    room.write(MEASURE + SEARCHED)
    assert main(["demo", "--plan"]) == 0
    told = capsys.readouterr().out
    assert "5 measurements, 15 seeds to look at." in told
    assert "results: 12 runs in 7 stacks (1.7 runs each; 4 runs cannot be stacked)" in told
    assert "searches for learning rates: 6 runs in 3 stacks" in told
    assert "16 processes, each with a stack of its own, a simulation of this model" in told
    assert told.count(", within an hour") == 2
    at_once, in_turns = (line for line in told.splitlines() if ", within an hour" in line)
    assert "which make measure starts where the driver has it: about " in at_once
    assert "MEASURED_MPS=0" in in_turns
    assert " at least, " in in_turns
    assert as_text(plan(measurements_of("demo").values())).splitlines()[0] in told
