"""Every figure of the chapter is drawn from its results, in both themes, and shows every seed."""

import numpy as np
import pytest
from measured_book.evidence.results import load_results
from measured_book.rooms.spikes import figures, reading

RESULTS = load_results("spikes")
PATH = (np.geomspace(1, 1e-9, 50), np.geomspace(0.1, 30, 50))


@pytest.mark.parametrize(
    "draw",
    [
        lambda: figures.plot_rewound(RESULTS["rewound"]),
        lambda: figures.plot_betas(RESULTS["betas"]),
        lambda: figures.plot_odd(RESULTS["odd"]),
        lambda: figures.plot_bowl({0.95: PATH, 0.999: PATH}, limit=38),
    ],
)
def test_figures_are_drawn_for_day_and_night(draw):
    drawn = draw()
    assert drawn.light.startswith(b"\x89PNG")
    assert drawn.dark.startswith(b"\x89PNG")
    assert drawn.light != drawn.dark


def test_every_spike_has_a_mark_in_every_row():
    rewound = RESULTS["rewound"]
    (axes,) = figures.plot_rewound(rewound).figure.axes
    marks = sum(len(line.get_xdata()) for line in axes.lines)
    assert marks == int(rewound.spiked.sum()) * rewound.sizes["arm"]
    shown = [text.get_text() for text in axes.texts]
    wanted = [reading.came_again(rewound, arm=arm) for arm in figures.ARMS]
    assert [int(text.split()[0]) for text in shown] == wanted


def test_every_seed_of_the_memories_is_a_dot():
    betas = RESULTS["betas"]
    for panel in figures.plot_betas(betas).figure.axes:
        dots = [line for line in panel.lines if line.get_marker() == "o"]
        assert [len(line.get_xdata()) for line in dots] == [betas.sizes["seed"]] * len(
            figures.BETAS
        )
