"""Figures about entropy as a signal show every run and every group."""

import numpy as np
from measured_transformer.chapters.entropy_as_a_signal import figures

RNG = np.random.default_rng(0)


def test_the_plane_shows_every_run_and_crosses_the_failed():
    rates, scales, entropies = (RNG.random(9) + 0.1 for _ in range(3))
    failed = np.arange(9) < 4
    axes = figures.plot_plane_of_runs(rates, scales, entropies / 2, failed).figure.axes[0]
    offsets = np.asarray(axes.collections[0].get_offsets())
    assert np.allclose(offsets, np.stack([rates, scales], 1))
    assert np.allclose(np.asarray(axes.collections[0].get_array()), entropies / 2)
    (crosses,) = axes.get_lines()
    assert np.allclose(crosses.get_xdata(), rates[:4])


def test_ends_are_drawn_for_every_kind_with_the_limit():
    entropies = {"slow": RNG.random(3), "fast": RNG.random(4)}
    finals = {"slow": np.array([1e-5, 0.5, 2.0]), "fast": RNG.random(4)}
    axes = figures.plot_entropy_and_end(entropies, finals, 0.75).figure.axes[0]
    slow, fast, limit = axes.get_lines()
    assert np.allclose(slow.get_xdata(), entropies["slow"])
    assert np.allclose(slow.get_ydata(), [1e-3, 0.5, 2.0])
    assert np.allclose(fast.get_ydata(), np.clip(finals["fast"], 1e-3, None))
    assert set(limit.get_ydata()) == {0.75}


def test_areas_have_a_row_each():
    found = {"entropy": RNG.random(5), "loss": RNG.random(5)}
    axes = figures.plot_areas(found, demanded=0.7, chance=(0.4, 0.6)).figure.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == list(found)
    drawn = np.concatenate([np.atleast_1d(line.get_xdata()) for line in axes.get_lines()])
    for values in found.values():
        assert all(np.isclose(drawn, value).any() for value in (*values, values.mean()))
