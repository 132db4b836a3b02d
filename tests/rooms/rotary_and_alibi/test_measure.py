"""What the chapter on relative position measures, against what is known by other ways."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from measured_book.evidence.results import load_results
from measured_book.measuring.measurement import measurements_of
from measured_book.measuring.state import HOLDS, standing
from measured_book.rooms.rotary_and_alibi import measure
from measured_book.rooms.rotary_and_alibi.measure import (
    rotary_drift,
    rotary_scores,
    score_map,
)
from measured_transformer.analysis.sinusoids import explained_by_offset
from measured_transformer.models.config import Config

DOUBLE = torch.float64
RESULTS = load_results("rotary_and_alibi")


def test_every_result_is_of_this_code():
    for one in measurements_of("rotary_and_alibi").values():
        assert standing(one).state in HOLDS, standing(one).why


def test_rotary_scores_by_complex_numbers() -> None:
    rng = np.random.default_rng(0)
    q, k = rng.normal(size=(2, 5, 8))
    m, n = rng.integers(0, 50, size=(2, 5))
    rate = 10000.0 ** (-np.arange(0, 8, 2) / 8)
    turned_q = (q[:, 0::2] + 1j * q[:, 1::2]) * np.exp(1j * m[:, None] * rate)
    turned_k = (k[:, 0::2] + 1j * k[:, 1::2]) * np.exp(1j * n[:, None] * rate)
    wanted = (turned_q * turned_k.conj()).real.sum(1) / math.sqrt(8)
    arguments = [torch.from_numpy(a) for a in (q, k, m, n)]
    np.testing.assert_allclose(rotary_scores(*arguments).numpy(), wanted, atol=1e-12)
    rough = rotary_scores(*arguments, angles=torch.float32).numpy()
    np.testing.assert_allclose(rough, wanted, atol=1e-4)
    assert np.abs(rough - wanted).max() > 1e-9


def test_drift_is_rounding_with_exact_angles_and_ruinous_with_rounded_ones() -> None:
    exact = rotary_drift([1, 10000], dtype=DOUBLE)
    assert exact.error.max() < 1e-9
    assert exact.control.min() > 0.1
    low = rotary_drift([1, 10000], dtype=torch.bfloat16)
    wrong = rotary_drift([1, 10000], dtype=torch.bfloat16, angles=torch.bfloat16)
    assert low.error.max() < 0.1 < 1 < wrong.error.max()


def test_score_maps_show_each_scheme_for_what_it_is() -> None:
    one = Config(vocab=2, d_model=16, n_heads=1, n_layers=1, max_length=20)
    none = score_map(one.replace(positions="none"), 20)
    assert (none - none[0, 0]).abs().max() < 1e-5
    for scheme, relative in (
        ("rotary", True),
        ("alibi", True),
        ("relative", True),
        ("learned", False),
    ):
        share = explained_by_offset(score_map(one.replace(positions=scheme), 20).double())
        assert (share > 0.999) == relative, scheme


def test_controls_are_other_than_what_they_stand_beside():
    drawn = RESULTS["drawn"]
    for name in ("moved", "turned", "lengths", "stream", "values", "converted"):
        assert float(drawn[name].max()) < 1e-9, name
        assert float(drawn[f"{name}_control"].min()) > 1e-3, name


def test_the_score_of_equal_vectors_is_a_mean_of_cosines_and_stays_below_its_bound():
    turns = RESULTS["turns"].isel(seed=0)
    for base in measure.BASES:
        rates = float(base) ** (-np.arange(64) / 64)
        one = turns.sel(base=base)
        assert np.allclose(one.period, 2 * math.pi / rates)
        for distance in (0, 7, 1000):
            at = one.sel(distance=min(measure.DISTANCES, key=lambda d: abs(d - distance)))
            angles = float(at.distance) * rates
            assert float(at.alike) == pytest.approx(np.cos(angles).mean())
            sums = [
                math.hypot(np.cos(angles[:j]).sum(), np.sin(angles[:j]).sum()) for j in range(1, 65)
            ]
            assert float(at.bound) == pytest.approx(np.mean(sums))
        assert (np.abs(one.alike) <= one.bound).all()


def test_every_scheme_is_what_it_is_called():
    made = {name: measure.scheme(measure.WIDE, name) for name in measure.SCHEMES}
    for name, (config, options) in made.items():
        assert config.positions == (name if name in measure.PLAIN else "rotary")
        assert ("prepare" in options) == (name not in measure.PLAIN)


@pytest.mark.parametrize(
    ("rule", "result"),
    [
        (measure.BACK, "three_back"),
        (measure.COPY, "induction"),
        (measure.MIRROR, "reversal"),
    ],
)
def test_no_tuned_learning_rate_of_a_scheme_that_learns_stands_at_the_edge_of_its_grid(
    rule, result
):
    steps = RESULTS[result].steps
    learning = [
        scheme for scheme in measure.SCHEMES if (steps.sel(scheme=scheme) < rule.steps).mean() > 0.5
    ]
    assert {"learned", "sinusoidal"} <= set(learning)
    jobs = measure.trainings_of(rule, 0)
    for scheme in learning:
        rate = jobs[scheme].settings["learning_rate"]
        assert measure.RATES[0] < rate < measure.RATES[-1], scheme


def test_schemes_of_offsets_lose_nothing_when_the_sequence_moves():
    three_back = RESULTS["three_back"]
    for scheme in ("none", "relative", "alibi", "rotary", "partial", "hybrid"):
        one = three_back.sel(scheme=scheme)
        assert float(np.abs(one.moved - one.inside).max()) < 1e-4, scheme
    table = three_back.sel(scheme="learned")
    assert float((table.moved - table.inside).min()) > 0.1
