"""Every figure of the chapter draws what it is given: each seed, the right scale, nothing changed."""

import numpy as np
import pytest
from measured_transformer.chapters.learning_rate import figures
from measured_transformer.figures.style import ThemedFigure

RNG = np.random.default_rng(0)
TABLE = np.exp(RNG.normal(size=(3, 5)))


def shows(drawn: ThemedFigure, row: np.ndarray, panel: int = 0) -> bool:
    lines = [np.asarray(line.get_ydata()) for line in drawn.figure.axes[panel].get_lines()]
    return any(y.shape == row.shape and np.allclose(y, row) for y in lines)


def test_descents_follow_the_parabola():
    paths = dict(zip("abcd", np.vstack([TABLE, -TABLE[:1]]), strict=True))
    drawn = figures.plot_descents(paths)
    for panel, path in enumerate(paths.values()):
        assert shows(drawn, path**2 / 2, panel)
    assert drawn.light.startswith(b"\x89PNG")
    assert drawn.dark != drawn.light


def test_the_valley_has_a_logarithmic_axis():
    drawn = figures.plot_two_directions({"slow": TABLE[0], "fast": TABLE[1]})
    assert shows(drawn, TABLE[0])
    assert shows(drawn, TABLE[1])
    assert drawn.figure.axes[0].get_yscale() == "log"


def test_loss_by_rate_shows_every_seed_on_a_logarithmic_axis():
    rates = [1e-4, 1e-3, 1e-2, 1e-1, 1.0]
    drawn = figures.plot_loss_by_rate(rates, TABLE, levels={"guess": 6.0})
    for row in (*TABLE, TABLE.mean(0)):
        assert shows(drawn, row)
    axes = drawn.figure.axes[0]
    assert axes.get_xscale() == "log"
    assert [text.get_text() for text in axes.texts] == ["guess"]
    assert axes.get_ylim()[0] < TABLE.min()
    assert axes.get_ylim()[1] > 6


def test_factor_means_show_every_search():
    means = RNG.normal(size=(3, 4, 5))
    names = {name: range(5) for name in ("rate", "depth", "heads", "width")}
    drawn = figures.plot_factor_means(names, means)
    for panel in range(4):
        for row in (*means[:, panel], means[:, panel].mean(0)):
            assert shows(drawn, row, panel)
    assert drawn.figure.axes[0].get_xlabel() == "learning rate"


def test_shares_and_differences_are_drawn_a_dot_a_seed():
    shares = {name: RNG.normal(size=4) for name in ("rate", "depth", "heads", "width")}
    drawn = figures.plot_factor_shares({"wide": shares, "narrow": shares})
    for panel in (0, 1):
        dots = {float(x) for line in drawn.figure.axes[panel].get_lines() for x in line.get_xdata()}
        assert set(map(float, np.concatenate(list(shares.values())))) <= dots


def test_jumps_are_counted_from_the_change():
    drawn = figures.plot_after_a_jump({"up": {"a": TABLE[0]}, "down": {"a": TABLE[1]}}, before=2)
    line = drawn.figure.axes[1].get_lines()[0]
    np.testing.assert_allclose(line.get_xdata(), [-2, -1, 0, 1, 2])
    np.testing.assert_allclose(line.get_ydata(), TABLE[1])


def test_optimisers_show_tuning_and_differences():
    tables = {name: {1e-3: 1.0, 1e-2: 2.0 + place} for place, name in enumerate("abc")}
    drawn = figures.plot_optimisers(tables, {"b": TABLE[0], "c": TABLE[1]}, margin=0.01)
    for place in range(3):
        assert shows(drawn, np.array([1.0, 2.0 + place]))
    dots = [line.get_xdata() for line in drawn.figure.axes[1].get_lines()]
    assert any(len(x) == 5 and np.allclose(x, TABLE[1]) for x in dots)


def test_a_factor_without_a_colour_is_an_error():
    with pytest.raises(KeyError):
        figures.plot_factor_means({name: range(5) for name in "abcd"}, RNG.normal(size=(2, 4, 5)))
