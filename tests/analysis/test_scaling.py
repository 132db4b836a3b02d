"""A scaling law: constants that are known come back, and losses that do not fit are told so."""

from __future__ import annotations

import numpy as np
import pytest
from measured_transformer.analysis.scaling import ScalingLaw, fit_law

SIZES, TEXTS = np.meshgrid([2e3, 1e4, 5e4, 2e5], [6e4, 2e5, 6e5, 2e6])


@pytest.mark.parametrize(
    "law",
    [
        ScalingLaw(1.2, 30.0, 0.45, 80.0, 0.35, 0.0),
        ScalingLaw(0.5, 5.0, 0.2, 2000.0, 0.6, 0.0),
    ],
)
def test_known_constants_come_back(law: ScalingLaw) -> None:
    n, d = SIZES.ravel(), TEXTS.ravel()
    found = fit_law(n, d, law(n, d))
    assert found.error < 1e-5
    assert found.size_exponent == pytest.approx(law.size_exponent, rel=0.02)
    assert found.text_exponent == pytest.approx(law.text_exponent, rel=0.02)
    assert found.floor == pytest.approx(law.floor, rel=0.02)
    assert float(found(2e6, 2e7)) == pytest.approx(float(law(2e6, 2e7)), rel=0.01)


def test_noise_moves_the_law_a_little() -> None:
    law = ScalingLaw(1.2, 30.0, 0.45, 80.0, 0.35, 0.0)
    n, d = SIZES.ravel(), TEXTS.ravel()
    noise = np.random.default_rng(0).normal(0, 0.01, n.size)
    found = fit_law(n, d, law(n, d) * np.exp(noise))
    assert found.error == pytest.approx(0.01, rel=0.5)
    assert float(found(1e6, 6e6)) == pytest.approx(float(law(1e6, 6e6)), rel=0.05)


def test_too_few_runs_are_refused() -> None:
    with pytest.raises(ValueError, match="five runs"):
        fit_law([1e3] * 4, [1e5] * 4, [2.0] * 4)
    with pytest.raises(ValueError, match="shapes"):
        fit_law([1e3] * 6, [1e5] * 5, [2.0] * 6)
