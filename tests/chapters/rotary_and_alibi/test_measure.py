"""Rotary scores against complex numbers, and what rounding does to them."""

from __future__ import annotations

import math

import numpy as np
import torch
from measured_transformer.analysis.sinusoids import explained_by_offset
from measured_transformer.chapters.rotary_and_alibi.measure import (
    rotary_drift,
    rotary_scores,
    score_map,
)
from measured_transformer.models.config import Config

DOUBLE = torch.float64


def test_rotary_scores_by_complex_numbers() -> None:
    rng = np.random.default_rng(0)
    q, k = rng.normal(size=(2, 5, 8))
    m, n = rng.integers(0, 50, size=(2, 5))
    rate = 10000.0 ** (-np.arange(0, 8, 2) / 8)
    turned_q = (q[:, 0::2] + 1j * q[:, 1::2]) * np.exp(1j * m[:, None] * rate)
    turned_k = (k[:, 0::2] + 1j * k[:, 1::2]) * np.exp(1j * n[:, None] * rate)
    wanted = (turned_q * turned_k.conj()).real.sum(1) / math.sqrt(8)
    arguments = [torch.from_numpy(a) for a in (q, k, m, n)]
    for angles_in_dtype in (False, True):
        scores = rotary_scores(*arguments, angles_in_dtype=angles_in_dtype)
        np.testing.assert_allclose(scores.numpy(), wanted, atol=1e-12)


def test_drift_is_rounding_with_exact_angles_and_ruinous_with_rounded_ones() -> None:
    exact = rotary_drift([1, 10000], dtype=DOUBLE)
    assert exact.error.max() < 1e-9
    assert exact.control.min() > 0.1
    low = rotary_drift([1, 10000], dtype=torch.bfloat16)
    wrong = rotary_drift([1, 10000], dtype=torch.bfloat16, angles_in_dtype=True)
    assert low.error.max() < 0.1 < 1 < wrong.error.max()


def test_score_maps_show_each_scheme_for_what_it_is() -> None:
    one = Config(vocab=2, d_model=16, n_heads=1, n_layers=1, max_length=20)
    none = score_map(one.replace(positions="none"), 20)
    assert (none - none[0, 0]).abs().max() < 1e-5
    for scheme, relative in (("rotary", True), ("alibi", True), ("learned", False)):
        share = explained_by_offset(score_map(one.replace(positions=scheme), 20).double())
        assert (share > 0.999) == relative, scheme
