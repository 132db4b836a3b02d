"""Every figure of the chapter draws what it is given: each seed, every run, nothing changed."""

import numpy as np
import pytest
from measured_transformer.chapters.schedules import figures
from measured_transformer.chapters.schedules.measure import Trial, bystanders, contenders
from measured_transformer.figures.style import ThemedFigure
from measured_transformer.training.schedules import Constant, Noam

RNG = np.random.default_rng(0)
TABLE = RNG.random((3, 6)) + 0.1


def curves(drawn: ThemedFigure, panel: int = 0) -> list[tuple[np.ndarray, np.ndarray]]:
    return [
        (np.asarray(line.get_xdata(), dtype=float), np.asarray(line.get_ydata(), dtype=float))
        for line in drawn.figure.axes[panel].get_lines()
    ]


def shows(drawn: ThemedFigure, x, y, panel: int = 0) -> bool:
    return any(
        len(px) == len(x) and np.allclose(px, x) and np.allclose(py, y)
        for px, py in curves(drawn, panel)
    )


def test_shapes_are_the_schedules_themselves():
    panels = [
        {name: next(iter(of.values())) for name, of in made(100).items()}
        for made in (contenders, bystanders)
    ]
    drawn = figures.plot_shapes(panels, 100)
    for panel, group in enumerate(panels):
        for schedule in group.values():
            assert shows(drawn, range(100), [schedule(step) for step in range(100)], panel)
    assert drawn.dark != drawn.light


def test_branches_meet_at_the_peaks():
    drawn = figures.plot_two_branches(64, (20, 40), 100)
    for warmup in (20, 40):
        schedule = Noam(64, warmup)
        assert shows(drawn, range(1, 101), [schedule(step) for step in range(100)])
        assert shows(drawn, [warmup], [schedule.peak])


def test_every_trial_is_drawn_and_the_choice_is_circled():
    rates = (0.001, 0.01)
    tried = {
        name: [
            Trial(shape, Constant(), rate, tuple(RNG.random(2) + 0.1), 1.0)
            for shape in shapes
            for rate in rates
        ]
        for name, shapes in contenders(200).items()
    }
    drawn = figures.plot_trials(tried)
    for panel, (name, found) in enumerate(tried.items()):
        assert drawn.figure.axes[panel].get_title() == name
        for shape in {trial.shape for trial in found}:
            of = [trial for trial in found if trial.shape == shape]
            for seed in range(2):
                assert shows(drawn, rates, [trial.losses[seed] for trial in of], panel)
            assert shows(drawn, rates, [trial.loss for trial in of], panel)
        best = min(found, key=lambda trial: trial.loss)
        x, y = curves(drawn, panel)[-1]
        assert (x[0], y[0]) == (best.rate, pytest.approx(best.loss))


def test_the_tournament_has_a_row_for_each_schedule_and_every_seed():
    groups = dict(zip(figures.CONCEPTS, np.abs(RNG.normal(size=(4, 5))), strict=False))
    drawn = figures.plot_tournament({"one": groups, "two": groups})
    for panel in range(2):
        axes = drawn.figure.axes[panel]
        assert [label.get_text() for label in axes.get_yticklabels()] == list(groups)
        xs = [x for x, _ in curves(drawn, panel)]
        for values in groups.values():
            assert any(len(x) == 5 and np.allclose(x, values) for x in xs)


def test_the_table_of_constants_writes_every_loss():
    drawn = figures.plot_constants_of_decay(
        TABLE[:, :4], (1e-3, 2e-3, 3e-3, 4e-3), (5.0, 50.0, 500.0)
    )
    written = [text.get_text() for text in drawn.figure.axes[0].texts]
    assert written == [f"{loss:.2f}" for loss in TABLE[:, :4].ravel()]


def test_the_budget_marks_runs_whose_peak_is_too_high():
    runs = [(0.1, 1.0, False), (0.2, 0.5, False), (9.0, 0.9, True)]
    drawn = figures.plot_budget({"constant": runs}, {"half": 0.5})
    assert shows(drawn, [0.1, 0.2], [1.0, 0.5])
    assert shows(drawn, [9.0], [0.9])
    marks = {
        line.get_marker() for line in drawn.figure.axes[0].get_lines() if len(line.get_xdata()) == 1
    }
    assert "x" in marks


def test_curves_and_paths_show_every_seed():
    drawn = figures.plot_curves(
        {"a": {"constant": TABLE}, "b": {"cosine": 2 * TABLE}}, {"a": 1.0, "b": 2.0}
    )
    for row in TABLE:
        assert shows(drawn, range(1, 7), row, 0)
        assert shows(drawn, range(1, 7), 2 * row, 1)
    drawn = figures.plot_generalisation({"constant": (TABLE, 1.5 * TABLE)}, 0.3)
    for row in TABLE:
        assert shows(drawn, row, 1.5 * row)
