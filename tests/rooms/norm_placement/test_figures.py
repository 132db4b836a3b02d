"""Every figure of the chapter is drawn from its results, in both themes, and shows every seed."""

import pytest
from measured_book.evidence.results import load_results
from measured_book.rooms.norm_placement import figures

RESULTS = load_results("norm_placement")


@pytest.mark.parametrize(
    ("draw", "names"),
    [
        (figures.plot_two_blocks, ["two_blocks"]),
        (figures.plot_border, ["border"]),
        (figures.plot_recipes, ["border", "recipes"]),
        (figures.plot_alike, ["alike"]),
        (figures.plot_untrained, ["untrained"]),
        (figures.plot_elsewhere, ["border", "elsewhere"]),
    ],
)
def test_figures_are_drawn_for_day_and_night(draw, names):
    drawn = draw(*(RESULTS[name] for name in names))
    assert drawn.light.startswith(b"\x89PNG")
    assert drawn.dark.startswith(b"\x89PNG")
    assert drawn.light != drawn.dark


def test_every_training_of_two_blocks_is_a_dot():
    figure = figures.plot_two_blocks(RESULTS["two_blocks"]).figure
    dots = sum(
        len(line.get_xdata()) for line in figure.axes[0].lines if line.get_marker() != "None"
    )
    assert dots == RESULTS["two_blocks"].steps.size


def test_every_cell_of_the_map_says_its_share():
    border = RESULTS["border"]
    figure = figures.plot_border(border).figure
    for panel, placement in zip(figure.axes, ("pre", "post"), strict=True):
        shown = [text.get_text().split("\n")[0] for text in panel.texts]
        shares = border.solved.sel(placement=placement).mean("seed").values.ravel()
        assert shown == [f"{share:.0%}" for share in shares]
