"""Every figure on the order of layers draws what it is given: each seed, the means, the references."""

import numpy as np
from measured_transformer.chapters.layers import figures as layers
from measured_transformer.figures.style import ThemedFigure

RNG = np.random.default_rng(0)
SEEDS = 3


def table(columns: int) -> np.ndarray:
    return RNG.random((SEEDS, columns))


def lines(drawn: ThemedFigure, panel: int):
    for line in drawn.figure.axes[panel].get_lines():
        yield np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float)


def shows(drawn, x, y, panel=0) -> bool:
    x, y = np.asarray(x, float), np.asarray(y, float)
    return any(
        len(px) == len(x) and np.allclose(px, x) and np.allclose(py, y)
        for px, py in lines(drawn, panel)
    )


def shows_seeds(drawn, x, rows, panel=0):
    return all(shows(drawn, x, row, panel) for row in (*rows, rows.mean(0)))


def shows_points(drawn, values, panel=0):
    found = np.concatenate([px for px, _ in lines(drawn, panel)])
    return all(np.isclose(found, value).any() for value in (*values, np.mean(values)))


def test_rows_are_drawn_as_they_are():
    rows = {"even": [0.25] * 4, "one": [0.0, 0.0, 1.0, 0.0]}
    drawn = layers.plot_rows_of_weights(rows, {"even": "distance 1.5", "one": "distance 1"})
    for panel, (name, weights) in zip(drawn.figure.axes, rows.items(), strict=True):
        assert [bar.get_height() for bar in panel.patches] == weights
        assert any(text.get_text().startswith(name) for text in panel.texts)
    assert drawn.dark != drawn.light


def test_every_seed_of_every_model_is_there_by_layer():
    kinds = {name: table(6) for name in layers.MODELS}
    null = table(6)
    drawn = layers.plot_by_layer({"a": kinds, "b": kinds}, {"a": (0.5, "even")}, {"b": null})
    for panel in (0, 1):
        for rows in kinds.values():
            assert shows_seeds(drawn, range(1, 7), rows, panel)
    assert shows_seeds(drawn, range(1, 7), null, 1)
    assert not shows_seeds(drawn, range(1, 7), null, 0)
    assert shows(drawn, [0, 1], [0.5, 0.5], 0)


def test_probes_and_controls():
    found = {name: {"probe": table(7), "control": table(7)} for name in ("x", "y")}
    drawn = layers.plot_probes(found, chance={"x": 0.5, "y": 0.4})
    for panel, name in enumerate(found):
        for rows in found[name].values():
            assert shows_seeds(drawn, range(7), rows, panel)
        assert shows(drawn, [0, 1], [drawn_chance := {"x": 0.5, "y": 0.4}[name]] * 2, panel)
        assert drawn_chance


def test_centres_join_the_seeds():
    found = {kind: {"one": RNG.random(4), "two": RNG.random(4)} for kind in layers.MODELS}
    drawn = layers.plot_centres(found)
    for place, properties in enumerate(found.values()):
        for values in properties.values():
            assert shows_points(drawn, values)
        for one, two in zip(*properties.values(), strict=True):
            assert shows(drawn, [one, two], [2 * place, 2 * place + 1])


def test_passing_on_shows_rise_and_lens():
    rise = {"trained": table(6), "untrained": table(6) * 1e-6}
    read = {"agreement": table(7), "rest": table(7)}
    drawn = layers.plot_passing_on(rise, read)
    assert all(
        shows(drawn, range(1, 7), np.maximum(row, 1e-3)) for rows in rise.values() for row in rows
    )
    assert all(shows_seeds(drawn, range(7), rows, 1) for rows in read.values())


def test_what_training_makes_has_a_panel_a_statistic():
    panels = {s: {kind: RNG.random(4) for kind in layers.MODELS} for s in ("p", "q")}
    drawn = layers.plot_made_by_training(panels)
    for panel, kinds in enumerate(panels.values()):
        assert all(shows_points(drawn, values, panel) for values in kinds.values())
        names = [t.get_text() for t in drawn.figure.axes[panel].get_yticklabels()]
        assert names == list(layers.MODELS)
