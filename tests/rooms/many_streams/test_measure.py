"""Arms differ in their streams alone, and the wider one has as many weights as mHC."""

import pytest
from measured_book.rooms.many_streams import measure
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
