"""Arms differ in their streams alone, and the wider one has as many weights as mHC."""

import pytest
from measured_book.evidence.results import load_result
from measured_book.evidence.seeds import seeds_of
from measured_book.rooms.many_streams import figures, measure
from measured_book.rooms.many_streams.measure import ARMS
from measured_transformer.training.loop import make_model


@pytest.fixture
def jobs(monkeypatch):
    monkeypatch.setattr(measure, "tuned", lambda search: search.rates[0])
    return measure.streams.trainings(0)


def weights(job):
    model = make_model(job.config, causal=True, seed=0)
    if prepare := job.settings.get("prepare"):
        prepare(model)
    return sum(weight.numel() for weight in model.parameters())


def test_arms_differ_in_streams_or_width_alone(jobs):
    rest = [{k: v for k, v in job.settings.items() if k != "prepare"} for job in jobs.values()]
    assert all(one == rest[0] for one in rest)
    assert {job.config.replace(d_ff=None) for job in jobs.values()} == {jobs["one"].config}
    assert set(jobs) == set(ARMS)


def test_the_wider_stream_has_the_weights_of_mhc(jobs):
    assert weights(jobs["wider"]) == pytest.approx(weights(jobs["constrained"]), rel=0.002)
    assert weights(jobs["one"]) == 45280
    assert weights(jobs["constrained"]) / weights(jobs["one"]) == pytest.approx(1.41, abs=0.01)


def test_fresh_arms_spare_what_no_input_changes_and_nothing_else(monkeypatch):
    monkeypatch.setattr(measure, "tuned", lambda search: search.rates[0])
    old, new = measure.streams.trainings(0), measure.spared.trainings(0)
    for arm, job in new.items():
        assert (job.config, job.task) == (old[arm].config, old[arm].task)
        assert job.seed == old[arm].seed + measure.FRESH
        assert job.settings["weight_decay"] == 0.0
        hook = job.settings["after_step"]
        assert (hook.strength, hook.spared) == (measure.DECAY, measure.STATIC)
        model = make_model(job.config, causal=True, seed=0)
        job.settings["prepare"](model)
        spared = [name for name, _ in model.named_parameters() if name.endswith(hook.spared)]
        assert len(spared) == (0 if arm in ("one", "wider") else 3 * 2 * measure.BLOCKS)


def test_the_figure_has_a_row_for_every_arm_in_both_panels():
    result = load_result("many_streams", "spared")
    panels = figures.plot_streams(result).figure.axes
    assert len(panels) == 2
    for axes in panels:
        assert len(axes.get_yticks()) == len(figures.ARMS) == len(ARMS)


def test_the_price_of_the_constraint_has_trainings_of_its_own(monkeypatch):
    monkeypatch.setattr(measure, "tuned", lambda search: search.rates[0])
    seen = {
        job.seed
        for seed in seeds_of(measure.spared.seeds)
        for job in measure.spared.trainings(seed).values()
    }
    seen |= {
        job.seed
        for seed in seeds_of(measure.streams.seeds)
        for job in measure.streams.trainings(seed).values()
    }
    for seed in seeds_of(measure.constraint_afresh.seeds):
        for arm, job in measure.constraint_afresh.trainings(seed).items():
            same = measure.spared.trainings.train(seed, arm=arm)
            assert (job.config, job.task, job.settings) == (same.config, same.task, same.settings)
            assert job.seed == measure.AGAIN + seed
            assert job.seed not in seen
