"""Every figure on layers as steps draws what it is given: each seed, the means, the bounds, the numbers."""

import numpy as np
from measured_transformer.chapters.layers_as_steps import figures
from measured_transformer.figures.style import ThemedFigure

RNG = np.random.default_rng(0)
SEEDS = 3


def table(columns: int) -> np.ndarray:
    return RNG.random((SEEDS, columns)) + 0.01


def lines(drawn: ThemedFigure, panel: int = 0):
    for line in drawn.figure.axes[panel].get_lines():
        yield np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float)


def shows(drawn: ThemedFigure, x, y, panel: int = 0) -> bool:
    x, y = np.asarray(x, float), np.asarray(y, float)
    return any(
        len(px) == len(x) and np.allclose(px, x) and np.allclose(py, y)
        for px, py in lines(drawn, panel)
    )


def shows_seeds(drawn: ThemedFigure, x, rows, panel: int = 0) -> bool:
    return all(shows(drawn, x, row, panel) for row in (*rows, rows.mean(0)))


def words(drawn: ThemedFigure, panel: int) -> list[str]:
    return [text.get_text() for text in drawn.figure.axes[panel].texts]


def test_two_teams_are_drawn_as_they_walk():
    teams = {
        "refiners": {"whole": [8, 4, 2], "one skipped": [8, 4]},
        "relay": {"whole": [8, 8, 0], "one skipped": [8, 8]},
    }
    drawn = figures.plot_two_teams(teams)
    for panel, walks in enumerate(teams.values()):
        for distance in walks.values():
            assert shows(drawn, range(len(distance)), distance, panel)
    assert drawn.light != drawn.dark


def test_what_is_read_off_has_every_seed_and_the_guess():
    panels = {task: {name: table(7) for name in figures.READERS} for task in ("one", "two")}
    drawn = figures.plot_read_off(panels, {"one": (2.5, "even guess"), "two": (1.5, "shares")})
    for panel, (task, readers) in enumerate(panels.items()):
        assert all(shows_seeds(drawn, range(7), rows, panel) for rows in readers.values())
        assert shows(drawn, [0, 1], [{"one": 2.5, "two": 1.5}[task]] * 2, panel)
    assert "even guess" in words(drawn, 0)


def test_the_map_of_edits_says_each_cost():
    skip, repeat, swap = RNG.random(3), RNG.random(3), RNG.random((3, 3))
    drawn = figures.plot_edit_map({"task": (skip, repeat, swap)}, label="nats")
    told = words(drawn, 0)
    assert len(told) == 3 + 3 + 6  # no layer changes places with itself
    assert told[:6] == [f"{value:.2f}" for value in (*skip, *repeat)]
    assert f"{swap[0, 2]:.2f}" in told
    names = [text.get_text() for text in drawn.figure.axes[0].get_yticklabels()]
    assert names == ["skipped", "run twice", "swapped with 1", "swapped with 2", "swapped with 3"]
    shown = np.asarray(drawn.figure.axes[0].images[0].get_array(), float)
    assert np.allclose(shown[0], skip)
    assert np.allclose(shown[1], repeat)
    assert shown.shape == (5, 3)


def test_cosines_are_means_over_seeds():
    cosines = RNG.uniform(-0.5, 0.5, (SEEDS, 4, 4))
    drawn = figures.plot_cosines_of_writes({"one": cosines, "two": -cosines})
    assert len(words(drawn, 0)) == 12
    assert words(drawn, 0)[0] == f"{cosines[:, 0, 1].mean():.2f}".replace("-0.00", "0.00")


def test_what_is_kept_has_every_seed_and_both_lines():
    found = {"token": table(13), "position": table(13)}
    drawn = figures.plot_kept(found, chance=0.1, bound=0.99)
    assert all(shows_seeds(drawn, np.arange(13) / 2, rows) for rows in found.values())
    assert shows(drawn, [0, 1], [0.1, 0.1])
    assert shows(drawn, [0, 1], [0.99, 0.99])


def test_surplus_layers_have_every_training():
    found = {name: table(6) for name in figures.ARMS}
    drawn = figures.plot_surplus(found, bound=0.3)
    assert all(shows_seeds(drawn, range(1, 7), rows) for rows in found.values())
    assert shows(drawn, [0, 1], [0.3, 0.3])
    assert drawn.figure.axes[0].get_yscale() == "log"


def test_lengths_and_losses_show_each_sublayer_and_each_seed():
    length = [RNG.random(6), RNG.random(8)]
    rise = [RNG.random(6) - 0.3, RNG.random(8) - 0.3]
    agreement = {"zero": RNG.uniform(-1, 1, SEEDS), "mean": RNG.uniform(-1, 1, SEEDS)}
    drawn = figures.plot_lengths_and_losses(length, rise, agreement, bound=0.7)
    for kind in (0, 1):
        x = np.concatenate([one[kind::2] for one in length])
        y = np.maximum(np.concatenate([one[kind::2] for one in rise]), 1e-3)
        assert shows(drawn, x, y)
    across = np.concatenate([px for px, _ in lines(drawn, 1)])
    for values in agreement.values():
        assert all(np.isclose(across, value).any() for value in (*values, values.mean()))
    assert np.isclose(across, 0.7).any()
