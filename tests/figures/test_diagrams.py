"""The visual language of the diagrams: same concept, same colour; placements differ where they should."""

import matplotlib.pyplot as plt
import pytest
from matplotlib.colors import same_color
from matplotlib.patches import Circle, FancyBboxPatch
from measured_book.figures.diagrams import (
    block,
    box,
    canvas,
    plot_block_placements,
    plus,
    wire,
)
from measured_transformer.viewer.style import COLOURS


@pytest.fixture
def axes():
    figure, axes = plt.subplots()
    yield axes
    plt.close(figure)


def boxes(axes):
    return [patch for patch in axes.patches if isinstance(patch, FancyBboxPatch)]


@pytest.mark.parametrize("concept", ["attention", "ffn", "norm"])
def test_a_box_has_the_colour_of_its_concept(axes, concept):
    box(axes, (1.0, 1.0), concept)
    (drawn,) = boxes(axes)
    assert same_color(drawn.get_edgecolor(), COLOURS[concept])


@pytest.mark.parametrize(("placement", "norms_on_stream"), [("pre", 0), ("post", 2)])
def test_norms_lie_on_the_stream_only_in_post_norm_blocks(axes, placement, norms_on_stream):
    canvas(axes, width=5.0, height=9.0)
    block(axes, 1.3, placement=placement)
    norms = [b for b in boxes(axes) if same_color(b.get_edgecolor(), COLOURS["norm"])]
    on_stream = [b for b in norms if b.get_x() < 1.3 < b.get_x() + b.get_width()]
    assert len(norms) == 2
    assert len(on_stream) == norms_on_stream
    additions = [patch for patch in axes.patches if isinstance(patch, Circle)]
    assert [round(a.center[0], 6) for a in additions] == [1.3, 1.3]


def test_wrong_words_are_refused(axes):
    with pytest.raises(ValueError, match="attention, ffn, norm"):
        box(axes, (0.0, 0.0), "residual")
    with pytest.raises(ValueError, match="'pre' or 'post'"):
        block(axes, 0.0, placement="sandwich")
    with pytest.raises(ValueError, match="two points"):
        wire(axes, [(0.0, 0.0)])


def test_the_diagram_draws_for_both_themes():
    drawn = plot_block_placements()
    assert drawn.light.startswith(b"\x89PNG")
    assert drawn.light != drawn.dark
    plus(drawn.figure.axes[0], (1.0, 1.0))  # the light figure can be drawn on further
