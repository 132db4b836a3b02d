"""What figures are put together from: every seed is drawn, names stand apart, maps say their shares."""

from __future__ import annotations

import math

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from measured_book.figures.kit import (
    curves,
    kept_apart,
    level,
    name_at,
    name_ends,
    panels,
    plain_ticks,
    run_rows,
    share_map,
    solved_map,
    strips,
)
from measured_transformer.viewer.style import COLOURS
from xarray import DataArray, Dataset

ARMS = {"b": ("norm", "second"), "a": ("attention", "first")}
VALUES = DataArray(
    np.arange(24.0).reshape(3, 2, 4) + 1,
    dims=("seed", "arm", "step"),
    coords={"seed": [0, 1, 2], "arm": ["a", "b"], "step": [1, 2, 4, 8]},
)


def test_panels_have_letters_titles_and_shared_labels():
    _, axes = panels(2, 2, titles="wxyz", x="step", y="loss", sharex=True, sharey=True)
    assert [each.get_title(loc="left") for each in axes] == ["(a) w", "(b) x", "(c) y", "(d) z"]
    assert [each.get_xlabel() for each in axes] == ["", "", "step", "step"]
    assert [each.get_ylabel() for each in axes] == ["loss", "", "loss", ""]
    _, (one,) = panels(x="step")
    assert (one.get_title(loc="left"), one.get_xlabel()) == ("", "step")


def test_curves_show_every_seed_and_leave_out_what_is_missing():
    axes = Figure().subplots()
    values = VALUES.where(VALUES.step < 8)
    curves(axes, values, "step", ARMS, over="arm")
    lines = axes.get_lines()
    assert [len(line.get_xdata()) for line in lines] == [3] * 8
    means = [line for line in lines if not str(line.get_label()).startswith("_")]
    assert [line.get_label() for line in means] == ["second", "first"]
    assert list(means[1].get_ydata()) == VALUES.sel(arm="a")[:, :3].mean("seed").values.tolist()
    assert to_hex(means[0].get_color()) == COLOURS["norm"]


def test_a_single_curve_needs_no_seeds():
    axes = Figure().subplots()
    curves(axes, VALUES[0, 0], "step", {"": ("ffn", "")}, names="", x=[10, 20, 30, 40])
    (line,) = axes.get_lines()
    assert list(line.get_xdata()) == [10, 20, 30, 40]


def test_names_stand_at_the_ends_and_apart():
    figure = Figure()
    axes = figure.subplots()
    curves(axes, VALUES * 0 + 1, "step", ARMS, over="arm", names="end")
    words = {text.get_text(): text for text in axes.texts}
    assert set(words) == {"first", "second"}
    assert to_hex(words["first"].get_color()) == COLOURS["attention"]
    figure.draw_without_rendering()
    low, high = sorted(text.get_window_extent().y0 for text in words.values())
    assert high - low >= 10 * figure.dpi / 72
    assert all(text.xy == (8.0, 1.0) for text in words.values())
    name_ends(Figure().subplots())  # nothing to name


def test_places_move_no_farther_than_they_must():
    rng = np.random.default_rng(0)
    for _ in range(50):
        places = rng.uniform(0, 5, 6).tolist()
        found = kept_apart(places, 1.0)
        assert (np.diff(sorted(found)) >= 1 - 1e-9).all()
        assert np.argsort(found).tolist() == np.argsort(places).tolist()
        assert np.mean(found) == pytest.approx(np.mean(places))
    assert kept_apart([0.0, 3.0], 1.0) == [0.0, 3.0]


def test_strips_have_a_dot_for_each_seed_and_may_be_sorted():
    axes = Figure().subplots()
    strips(axes, VALUES[..., 0], ARMS, over="arm", label="loss", lowest_first=True)
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["first", "second"]
    dots = [line.get_xdata() for line in axes.lines if line.get_marker() == "o"]
    assert [list(each) for each in dots] == VALUES[..., 0].transpose("arm", "seed").values.tolist()


def runs(steps: list[float], solved: list[bool]) -> Dataset:
    return Dataset({"steps": ("seed", steps), "solved": ("seed", solved)})


def test_rows_of_runs_stand_from_top_to_bottom():
    axes = Figure().subplots()
    run_rows(
        axes, {"up": (runs([1, 2], [True, False]), "norm"), "down": (runs([3], [True]), "ffn")}
    )
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["down", "up"]
    above = [
        line for line in axes.lines if len(line.get_ydata()) and np.min(line.get_ydata()) > 0.5
    ]
    marks = [x for line in above if line.get_marker() != "None" for x in line.get_xdata()]
    assert sorted(marks) == [1, 2]


def test_maps_say_their_shares_and_more_where_most_succeed():
    axes = Figure().subplots()
    one = Dataset(
        {"steps": (("seed", "rate"), [[10.0, 30.0], [20.0, 30.0]]),
         "solved": (("seed", "rate"), [[1, 0], [1, 0]])},
        {"rate": [0.001, 0.0025]},
    )  # fmt: skip
    solved_map(axes, {"row": one})
    assert [text.get_text() for text in axes.texts] == ["100%\n15", "0%"]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1", "2.5"]
    with pytest.raises(ValueError, match=r"shape \(2, 1\), got \(1, 2\)"):
        share_map(axes, DataArray([[0.1, 0.2]]), rows=["a", "b"], columns=["c"])


def test_ticks_are_those_asked_for_in_plain_numbers():
    figure = Figure()
    axes = figure.subplots()
    axes.set_xscale("log")
    axes.set_xlim(0.04, 200)
    plain_ticks(axes.xaxis, (0.05, 1, 100))
    figure.draw_without_rendering()
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["0.05", "1", "100"]


@pytest.mark.parametrize("along", ["x", "y"])
def test_levels_are_dashed_and_named(along):
    axes = Figure().subplots()
    level(axes, 2.0, "chance", along=along)
    (line,) = axes.get_lines()
    data = line.get_xdata() if along == "x" else line.get_ydata()
    assert list(data) == [2.0, 2.0]
    assert axes.texts[0].get_text().strip() == "chance"


def test_names_can_be_placed_by_hand():
    axes = Figure().subplots()
    name_at(axes, ARMS, VALUES, over="arm", at={"a": (-4, 9)})
    (text,) = axes.texts
    assert (text.get_text(), text.xy) == ("first", (8.0, pytest.approx(12.0)))
    assert not math.isnan(text.xy[1])
