"""What the further rungs train: as many tokens as the ladder, cut otherwise, or three times as many."""

import pytest
from measured_book.evidence.results import load_results
from measured_book.ladder import AVERAGED, BATCH, LONG, SMALL, steps_for
from measured_book.rooms.ladder_further import figures, measure
from measured_book.rooms.ladder_further.measure import (
    AVERAGES,
    DECAYS,
    DROPPED,
    MUON,
    PASSES,
    PLANNED,
    SIZES,
    batches,
    batches_afresh,
    beta,
    dropped,
    longest,
    longest_afresh,
    repeated,
)

RESULTS = load_results("ladder_further")


@pytest.fixture(autouse=True)
def _rates_are_not_searched_for(monkeypatch):
    monkeypatch.setattr(measure, "tuned", lambda search: search.rates[0])
    monkeypatch.setattr("measured_book.ladder.tuned", lambda search: search.rates[0])


def job_of(grid, seed=0, **arm):
    return grid.trainings.train(seed, **arm)


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


def test_fresh_seeds_are_the_same_trainings_from_seeds_that_nothing_else_has():
    fresh = job_of(longest_afresh, seed=10, arm="cosine")
    assert fresh.seed == 1010
    assert fresh.settings == job_of(longest, seed=10, arm="cosine").settings
    fresh = job_of(batches_afresh, seed=10, batch=4, average="scaled")
    assert fresh.seed == 1010
    assert fresh.settings == job_of(batches, seed=10, batch=4, average="scaled").settings


def test_the_figure_shows_every_seed():
    axes = figures.plot_batches(RESULTS["batches"]).figure.axes[0]
    assert len(axes.lines) == 2 * (RESULTS["batches"].sizes["seed"] + 1)


@pytest.mark.parametrize("passes", PASSES)
def test_repeated_data_are_read_in_as_many_steps(passes):
    job = job_of(repeated, passes=passes, decay=0.3)
    assert job.settings["steps"] == steps_for(SMALL, LONG)
    assert job.task.windows * job.task.passes == job.settings["steps"] * BATCH
    assert job.task.passes == passes
    assert job.settings["weight_decay"] == 0.3
    assert job.config.dropout == 0


def test_dropout_is_all_that_differs_with_dropout():
    plain, other = (job_of(grid, passes=16, decay=0.1) for grid in (repeated, dropped))
    assert other.config == plain.config.replace(dropout=DROPPED)
    assert (other.task, other.settings) == (plain.task, plain.settings)


def test_the_figure_of_repeated_data_has_a_line_for_each_seed_and_mean():
    result = RESULTS["repeated"]
    axes = figures.plot_repeated(result, RESULTS["dropped"]).figure.axes[0]
    assert len(axes.lines) == (len(PASSES) + 1) * (result.sizes["seed"] + 1)
    assert len(axes.get_xticks()) == len(DECAYS)
