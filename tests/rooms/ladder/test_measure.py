"""What the ladder trains: sizes, lengths, schedules, and text enough that no window comes twice."""

import dataclasses
import json
from types import SimpleNamespace

import numpy as np
import pytest
from measured_book import ladder
from measured_book.evidence.results import load_results
from measured_book.ladder import (
    AROUND,
    AVERAGED,
    BATCH,
    COOLDOWNS,
    COSINES,
    ENDS,
    LONG,
    LONGEST,
    MEDIUM,
    SHORT,
    SMALL,
    WINDOW,
    options_of,
    schedule_of,
    speaker,
    steps_for,
    weights_of,
)
from measured_book.rooms.ladder import measure
from measured_book.rooms.ladder.measure import Fall
from measured_transformer.tasks.standard_library import library_text
from measured_transformer.training import tuned_table
from measured_transformer.training.loop import make_model

EVERY = (*ENDS, *COSINES, *COOLDOWNS)


@pytest.mark.parametrize("width", [SMALL, MEDIUM])
def test_the_number_of_weights_is_that_of_the_model(width):
    model = make_model(speaker(width), causal=True, seed=0)
    assert weights_of(width) == sum(weight.numel() for weight in model.parameters())


@pytest.mark.parametrize("tokens", [SHORT, LONG, LONGEST])
def test_steps_are_so_many_tokens_a_weight_and_the_text_has_them(tokens):
    for width in (SMALL, MEDIUM):
        read = steps_for(width, tokens) * BATCH * WINDOW
        assert read / weights_of(width) == pytest.approx(
            tokens, abs=BATCH * WINDOW / weights_of(width)
        )
        assert read < len(library_text("train"))


@pytest.mark.parametrize("name", EVERY)
def test_schedules_rise_alike_and_end_as_they_are_called(name):
    steps = 221
    made = [schedule_of(name, steps)(step) for step in range(steps)]
    assert made[:20] == pytest.approx([(step + 1) / 20 for step in range(20)])
    held = sum(rate == 1.0 for rate in made)
    if name in COOLDOWNS:
        assert held == steps - 19 - steps // 5 + 1
        assert made[-1] < 0.03
    elif name == "constant":
        assert held == steps - 19
    else:
        assert held == 1
        assert made[-1] == pytest.approx(0.1 if "tenth" in name else 0.0, abs=0.01)


def test_an_unknown_schedule_is_refused():
    with pytest.raises(ValueError, match="no schedule 'stairs' on the ladder"):
        schedule_of("stairs", 100)


def test_the_fall_is_the_mean_of_equal_parts():
    losses = np.arange(40.0)
    axis, found = Fall(parts=20)(SimpleNamespace(run=SimpleNamespace(losses=losses)))["fall"]
    assert axis == "part"
    assert found == losses.reshape(20, 2).mean(1).tolist()
    _, short = Fall(parts=4)(SimpleNamespace(run=SimpleNamespace(losses=losses[:3])))["fall"]
    assert short[:3] == [0.0, 1.0, 2.0]
    assert np.isnan(short[3])


def test_no_chosen_rate_lies_at_the_end_of_what_was_tried():
    found = load_results("ladder")
    assert {f"{name}_{tokens}" for name in ("ends", "cosines") for tokens in (5, 20)} <= set(found)
    tried = {}
    for line in map(json.loads, tuned_table.PACKAGED.read_text("utf-8").splitlines()):
        for name, losses in line["losses"].items():
            tried.setdefault(name, set()).update(rate for rate, _ in losses)
    for key, result in found.items():
        for schedule in result.schedule.values:
            name = f"ladder-{SMALL}-{key.rpartition('_')[2]}-{schedule}".replace(" ", "-").lower()
            (rate,) = set(result.rate.sel(schedule=schedule).values.tolist())  # one for all seeds
            assert min(tried[name]) < rate < max(tried[name])


def test_arms_of_a_rung_differ_in_schedule_and_rate_alone(monkeypatch):
    monkeypatch.setattr(ladder, "tuned", lambda search: max(search.rates))
    jobs = [measure.rung(SMALL, SHORT, name, 3) for name in EVERY]
    assert {(one.config, one.task, one.seed) for one in jobs} == {
        (speaker(SMALL), measure.StandardLibrary(length=WINDOW), 3)
    }
    told = [{k: v for k, v in one.settings.items() if k != "schedule"} for one in jobs]
    assert all(one == told[0] for one in told)
    assert told[0]["steps"] == 221
    assert told[0]["weight_decay"] == 0.1
    assert dataclasses.asdict(jobs[0].task)["passes"] == 1


def test_the_mean_of_states_is_that_of_the_last_fifth_at_a_constant_rate(monkeypatch):
    monkeypatch.setattr(ladder, "tuned", lambda search: max(search.rates))
    one = measure.rung(SMALL, SHORT, AVERAGED, 3)
    plain = measure.rung(SMALL, SHORT, "constant", 3)
    own = {name for name in one.settings if one.settings[name] != plain.settings[name]}
    assert own == {"prepare", "after_step"}
    assert options_of(AVERAGED, 221)["after_step"] == one.settings["after_step"]
    assert (one.settings["after_step"].last, one.settings["after_step"].steps) == (44, 221)
    assert one.key() is not None


def test_the_longest_runs_try_the_peak_that_was_best_before_and_its_neighbours(monkeypatch):
    tried = {}
    monkeypatch.setattr(
        ladder, "tuned", lambda search: tried.setdefault(search.name, search.rates)[0]
    )
    results = load_results("ladder")
    for name, rates in AROUND.items():
        measure.rung(SMALL, LONGEST, name, 3)
        before = [
            one.rate.sel(schedule=name)
            for key, one in results.items()
            if key.endswith("_20")
            if name in one.schedule.values
        ]
        assert float(before[0][0]) == pytest.approx(rates[1])
    assert list(tried.values()) == list(AROUND.values())
    assert all(name.startswith("ladder-32-60-") for name in tried)
