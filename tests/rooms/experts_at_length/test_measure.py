"""Arms do the same work for each token, and what is read of their experts is counted by hand."""

import numpy as np
import pytest
from measured_book import ladder
from measured_book.evidence.results import load_result
from measured_book.rooms.experts_at_length import figures, measure
from measured_book.rooms.experts_at_length.measure import ARMS, DENSE, NEURONS, ROUTED
from measured_transformer.models.config import Config


@pytest.fixture
def jobs(monkeypatch):
    for module in (ladder, measure):
        monkeypatch.setattr(module, "tuned", lambda search: search.rates[0])
    return measure.gained.trainings(0)


def test_arms_have_as_many_neurons_at_work_and_eight_times_as_many_in_all(jobs):
    assert jobs[DENSE].config.neurons == NEURONS
    for arm, (network, _) in ROUTED.items():
        assert network.per_token * network.width == NEURONS, arm
        assert network.n_experts * network.width == 8 * NEURONS, arm
        assert jobs[arm].config.network == network


def test_arms_differ_in_network_and_router_alone(jobs):
    settings = [dict(job.settings) for job in jobs.values()]
    for one in settings:
        one.pop("prepare", None)
    assert all(one == settings[0] for one in settings)
    assert {job.config.replace(network=Config(vocab=9).network) for job in jobs.values()} == {
        jobs[DENSE].config
    }
    assert {job.task for job in jobs.values()} == {jobs[DENSE].task}


def test_routers_take_the_share_of_the_arithmetic_that_the_claim_names(jobs):
    def products(config):
        whole = config.n_layers * (4 * config.d_model**2 + config.network.products(config))
        return whole + config.vocab * config.d_model

    dense = products(jobs[DENSE].config)
    more = {arm: products(jobs[arm].config) / dense - 1 for arm in ROUTED}
    assert more["one of 8"] == pytest.approx(0.017, abs=1e-3)
    assert more["four of 32"] == pytest.approx(0.068, abs=1e-3)


def test_what_is_shared_out_by_hand():
    chosen = np.array([[1.0, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 0], [1, 0, 1, 0]])
    found = measure.shared(chosen, np.array([4, 9, 4, 9]))
    entropy = 0.5 * np.log(2) + 0.5 * np.log(4)
    assert found["busiest"] == pytest.approx(2)
    assert found["evenness"] == pytest.approx(entropy / np.log(4))
    # the byte tells the second of two experts, half of the choices with a bit each
    assert found["byte"] == pytest.approx(0.5 * np.log(2) / entropy)
    alone = measure.shared(np.array([[1.0, 0], [1, 0]]), np.array([1, 2]))
    assert alone == {"busiest": 2.0, "evenness": 0.0, "byte": 0.0}


def test_the_figure_shows_each_arm_and_each_seed():
    result = load_result("experts_at_length", "gained")
    assert set(figures.ARMS) == set(ARMS)
    losses, loads = figures.plot_gained(result).figure.axes
    names = [label.get_text() for label in losses.get_yticklabels()]
    assert len(names) == len(ARMS)
    assert len(loads.get_yticklabels()) == len(ROUTED)


def test_loads_are_those_of_experts_and_only_of_them():
    result = load_result("experts_at_length", "gained")
    assert np.isnan(result.busiest.sel(arm=DENSE)).all()
    routed = result.sel(arm=list(ROUTED))
    assert (routed.busiest >= 1).all()
    for name in ("evenness", "byte"):
        assert ((routed[name] > 0) & (routed[name] <= 1)).all()
