"""Every figure of the chapter draws what it is given: each seed, the right scale, nothing changed."""

import numpy as np
import pytest
from measured_book.evidence.results import load_results
from measured_book.rooms.learning_rate import figures, measure, reading
from measured_transformer.viewer.style import ThemedFigure

RESULTS = load_results("learning_rate")
TABLE = np.exp(np.random.default_rng(0).normal(size=(3, 5)))


def shows(drawn: ThemedFigure, row: np.ndarray, panel: int = 0) -> bool:
    lines = [np.asarray(line.get_ydata()) for line in drawn.figure.axes[panel].get_lines()]
    return any(y.shape == row.shape and np.allclose(y, row) for y in lines)


def dots(drawn: ThemedFigure, panel: int) -> set[float]:
    lines = drawn.figure.axes[panel].get_lines()
    return {round(float(x), 9) for line in lines for x in line.get_xdata()}


@pytest.mark.parametrize(
    ("draw", "name", "given"),
    [
        (figures.plot_curve, "curve", {"frequencies": 3.0}),
        (figures.plot_edge, "descents", {}),
        (figures.plot_factor_shares, "searches", {}),
        (figures.plot_rivals, "settings", {"margin": 0.01}),
        (figures.plot_clipping, "clipping", {}),
        (figures.plot_batches, "batches", {}),
        (figures.plot_decay, "decays", {}),
        (figures.plot_muon, "muon", {}),
    ],
)
def test_figures_are_drawn_for_day_and_night(draw, name, given):
    drawn = draw(RESULTS[name], **given)
    assert drawn.light.startswith(b"\x89PNG")
    assert drawn.dark.startswith(b"\x89PNG")
    assert drawn.light != drawn.dark


def test_descents_follow_the_parabola():
    paths = dict(zip("abcd", np.vstack([TABLE, -TABLE[:1]]), strict=True))
    drawn = figures.plot_descents(paths)
    for panel, path in enumerate(paths.values()):
        assert shows(drawn, path**2 / 2, panel)


def test_the_valley_has_a_logarithmic_axis():
    drawn = figures.plot_two_directions({"slow": TABLE[0], "fast": TABLE[1]})
    assert shows(drawn, TABLE[0])
    assert shows(drawn, TABLE[1])
    assert drawn.figure.axes[0].get_yscale() == "log"


def test_jumps_are_counted_from_the_change():
    drawn = figures.plot_after_a_jump({"up": {"a": TABLE[0]}, "down": {"a": TABLE[1]}}, before=2)
    line = drawn.figure.axes[1].get_lines()[0]
    np.testing.assert_allclose(line.get_xdata(), [-2, -1, 0, 1, 2])
    np.testing.assert_allclose(line.get_ydata(), TABLE[1])


def test_the_curve_shows_every_seed():
    losses = RESULTS["curve"].loss.transpose("seed", "rate").values
    drawn = figures.plot_curve(RESULTS["curve"], frequencies=3.0)
    for row in (*losses, losses.mean(0)):
        assert shows(drawn, row)
    axes = drawn.figure.axes[0]
    assert [text.get_text() for text in axes.texts] == ["uniform guess", "byte frequencies"]
    assert axes.get_xscale() == "log"


def test_the_edge_of_each_rate_is_two_over_it():
    descents = RESULTS["descents"]
    drawn = figures.plot_edge(descents)
    for rate in measure.DESCENTS:
        assert shows(drawn, np.array([2 / rate, 2 / rate]))
        for row in descents.curvature.sel(rate=rate).transpose("seed", "step").values:
            assert shows(drawn, row)


def test_every_search_is_a_dot_in_both_ranges():
    shares = RESULTS["searches"].share
    drawn = figures.plot_factor_shares(RESULTS["searches"])
    for panel, space in enumerate(measure.SPACES):
        wanted = {round(float(x), 9) for x in shares.sel(space=space).values.ravel()}
        assert wanted <= dots(drawn, panel)


def test_rivals_are_drawn_as_differences():
    loss = RESULTS["settings"].loss
    apart = (loss.sel(arm="AdamW") - loss.sel(arm="report")).values
    drawn = figures.plot_rivals(RESULTS["settings"], margin=0.01)
    assert {round(float(x), 9) for x in apart} <= dots(drawn, 0)


def test_clipping_has_a_panel_for_each_optimiser():
    clipping = RESULTS["clipping"]
    drawn = figures.plot_clipping(clipping)
    for panel, kind in enumerate(measure.RATES):
        for clip in measure.CLIPS:
            for row in clipping.loss.sel(kind=kind, clip=clip).transpose("seed", "rate").values:
                assert shows(drawn, row, panel)


def test_batches_are_steps_against_examples():
    steps = np.exp(reading.log_steps(RESULTS["batches"]).values)
    drawn = figures.plot_batches(RESULTS["batches"])
    assert shows(drawn, steps.ravel(), 0)
    assert shows(drawn, reading.best_rates(RESULTS["batches"]).values.ravel(), 1)


def test_decay_and_muon_show_every_seed():
    decays, muon = RESULTS["decays"], RESULTS["muon"]
    drawn = figures.plot_decay(decays)
    for row in decays.kept.transpose("kind", "seed", "tenth").values.reshape(-1, 10):
        assert shows(drawn, row)
    drawn = figures.plot_muon(muon)
    for row in muon.loss.transpose("optimiser", "seed", "rate").values.reshape(-1, 6):
        assert shows(drawn, row)
