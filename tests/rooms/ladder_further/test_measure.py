"""What the further rungs train: as many tokens as the ladder, repeated, cut otherwise, or thrice as many."""

import pytest
from measured_book.evidence.results import load_results
from measured_book.rooms.ladder.measure import AVERAGED, BATCH, LONG, MUON, SMALL, steps_for
from measured_book.rooms.ladder_further import measure
from measured_book.rooms.ladder_further.measure import (
    AVERAGES,
    DECAYS,
    PASSES,
    PLANNED,
    SIZES,
    batches,
    beta,
    dropped,
    longest,
    repeated,
)

RESULTS = load_results("ladder_further")


@pytest.fixture(autouse=True)
def _rates_are_not_searched_for(monkeypatch):
    monkeypatch.setattr(measure, "tuned", lambda search: search.rates[0])
    monkeypatch.setattr("measured_book.rooms.ladder.measure.tuned", lambda search: search.rates[0])


def job_of(grid, seed=0, **arm):
    return grid.trainings.train(seed, **arm)


@pytest.mark.parametrize("passes", PASSES)
def test_every_pass_has_the_same_windows_and_all_passes_the_same_tokens(passes):
    job = job_of(repeated, passes=passes, decay=DECAYS[0])
    task, steps = job.task, steps_for(SMALL, LONG)
    assert task.windows * task.passes == steps * BATCH
    assert job.settings["steps"] == steps
    assert job.config.dropout == 0


def test_dropout_is_all_that_its_arms_have_besides():
    for decay in DECAYS:
        plain, other = (job_of(grid, passes=16, decay=decay) for grid in (repeated, dropped))
        assert other.config.dropout == 0.1
        assert other.config.replace(dropout=0.0) == plain.config
        assert other.task == plain.task
        assert other.settings["weight_decay"] == plain.settings["weight_decay"] == decay


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("average", AVERAGES)
def test_batches_of_all_sizes_read_the_same_number_of_tokens(size, average):
    job = job_of(batches, batch=size, average=average)
    whole = steps_for(SMALL, LONG) * BATCH
    assert job.settings["steps"] * size == whole
    assert job.settings["schedule"].warmup * size == 20 * BATCH
    assert job.settings["betas"] == (0.9, beta(size, average))


def test_half_lives_are_those_of_sixteen_windows():
    for size in SIZES:
        assert beta(size, "scaled") ** (BATCH / size) == pytest.approx(0.95)
        assert beta(size, "kept") == 0.95


@pytest.mark.parametrize("arm", [*PLANNED, AVERAGED, MUON])
def test_the_longest_runs_are_three_times_as_long(arm):
    settings = job_of(longest, arm=arm).settings
    assert settings["steps"] == pytest.approx(3 * steps_for(SMALL, LONG), abs=2)
    assert settings["weight_decay"] == 0.1
    assert (settings.get("optimiser", "AdamW") == "SGD") == (arm == MUON)


def test_the_longest_runs_of_the_ladder_are_these_once_more():
    ladder = load_results("ladder")
    for name, arm in (("cooldown_60", "cooldown"), ("cosine_60", "cosine"), ("ends_60", "linear")):
        losses = ladder[name].loss.sel(schedule=arm).values
        assert losses == pytest.approx(RESULTS["longest"].loss.sel(arm=arm).values, abs=1e-3)
