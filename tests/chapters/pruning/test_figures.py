"""The figures on removing heads draw every seed of what they are given."""

import numpy as np
from measured_transformer.chapters.pruning import figures as pruning

RNG = np.random.default_rng(0)
SEEDS = 3


def lines(axes):
    return [np.asarray(line.get_ydata(), dtype=float) for line in axes.get_lines()]


def shows(axes, values):
    return any(len(y) == len(values) and np.allclose(y, values) for y in lines(axes))


def points(axes, axis="x"):
    found = [getattr(line, f"get_{axis}data")() for line in axes.get_lines()]
    return np.concatenate([np.atleast_1d(np.asarray(each, dtype=float)) for each in found])


def test_twins_show_jobs_and_losses():
    drawn = pruning.plot_twins(
        [(2, 3), (1,), ()], 3, {"one": [0.0, 1.0, 2.0, 3.0], "two": [0.0, 0.0, 1.0, 3.0]}
    )
    above, below = drawn.figure.axes
    assert len(above.patches) == 9
    assert sum(patch.get_facecolor()[3] > 0 for patch in above.patches) == 3
    assert shows(below, [0, 1, 2, 3])
    assert shows(below, [0, 0, 1, 3])
    assert drawn.light != drawn.dark


def test_curves_have_a_panel_a_task_and_a_line_a_seed():
    shares = {"gradient": [0.0, 0.5, 1.0], "random": [0.0, 1.0]}
    losses = {
        task: {way: RNG.random((SEEDS, len(x))) for way, x in shares.items()} for task in "ab"
    }
    drawn = pruning.plot_curves(shares, losses)
    for axes, ways in zip(drawn.figure.axes, losses.values(), strict=True):
        for values in ways.values():
            assert all(shows(axes, row) for row in (*values, values.mean(0)))


def test_shares_show_every_seed_in_its_row():
    found = {way: {task: RNG.random(SEEDS) for task in "abc"} for way in ("gradient", "random")}
    drawn = pruning.plot_shares(found, claimed=(0.1, 0.2))
    for axes, by_task in zip(drawn.figure.axes, found.values(), strict=True):
        drawn_at = points(axes)
        assert all(np.isclose(drawn_at, v).any() for each in by_task.values() for v in each)


def test_rises_are_sorted():
    found = {task: RNG.random((SEEDS, 5)) for task in "ab"}
    drawn = pruning.plot_rises(found, critical=0.1)
    for axes, values in zip(drawn.figure.axes, found.values(), strict=True):
        assert all(shows(axes, sorted(row, reverse=True)) for row in values)


def test_few_heads_have_a_row_an_arm():
    arms = ("eight heads", "4 cut", "4 from scratch")
    found = {task: {arm: RNG.random(SEEDS) for arm in arms} for task in "ab"}
    drawn = pruning.plot_few_heads(found)
    for axes, by_arm in zip(drawn.figure.axes, found.values(), strict=True):
        assert [label.get_text() for label in axes.get_yticklabels()] == list(arms)
        drawn_at = points(axes)
        assert all(np.isclose(drawn_at, v).any() for each in by_arm.values() for v in each)


def test_a_random_quarter_joins_pairs():
    found = {task: (RNG.random(SEEDS), RNG.random(SEEDS)) for task in "ab"}
    axes = pruning.plot_random_quarter(found, names=("eight", "four")).figure.axes[0]
    for left, right in found.values():
        assert all(shows(axes, pair) for pair in zip(left, right, strict=True))
        assert all(np.isclose(points(axes, "y"), m).any() for m in (left.mean(), right.mean()))
