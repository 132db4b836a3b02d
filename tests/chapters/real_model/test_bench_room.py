"""What the room of the real model reads and draws."""

from __future__ import annotations

import pytest
from measured_transformer.chapters.real_model import figures
from measured_transformer.chapters.real_model import measure as m
from measured_transformer.evidence.results import load_results
from measured_transformer.figures.style import ThemedFigure
from measured_transformer.measuring.measurement import measurements_of
from measured_transformer.measuring.state import HOLDS, standing

RESULTS = load_results("real_model")
DRAWN = {
    "plot_parameters": lambda: figures.plot_parameters(RESULTS["parameters"]),
    "plot_atlas": lambda: figures.plot_atlas(RESULTS["attention"]),
    "plot_sink": lambda: figures.plot_sink(RESULTS["attention"]),
    "plot_massive": lambda: figures.plot_massive(RESULTS["stream"]),
    "plot_words": lambda: figures.plot_words(RESULTS["stream"]),
    "plot_layers": lambda: figures.plot_layers(RESULTS["stream"]),
    "plot_heads": lambda: figures.plot_heads(RESULTS["heads"]),
}


def test_every_result_is_of_this_code() -> None:
    for one in measurements_of("real_model").values():
        assert standing(one).state in HOLDS, standing(one).why


@pytest.mark.parametrize("name", DRAWN)
def test_figure_is_drawn_for_both_themes(name: str) -> None:
    drawn = DRAWN[name]()
    assert isinstance(drawn, ThemedFigure)
    assert drawn.light != drawn.dark


def test_every_figure_function_is_tried() -> None:
    assert {name for name in vars(figures) if name.startswith("plot_")} == set(DRAWN)


def test_only_the_published_weights_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(m.PACKAGE, reason="the checkpoint is not installed")
    monkeypatch.setattr(m, "PUBLISHED", "0" * 64)
    with pytest.raises(ValueError, match="SHA-256"):
        m.minilm.__wrapped__()


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(m, "PACKAGE", "no_such_package")
    with pytest.raises(FileNotFoundError, match="pretrained"):
        m.checkpoint_folder()


def test_sentences_stand_between_the_special_tokens() -> None:
    pytest.importorskip(m.PACKAGE, reason="the checkpoint is not installed")
    for pair in m.pairs():
        for text in pair:
            assert (text[0], text[-1]) == (m.FIRST, m.SEPARATOR)
            assert m.SHORTEST <= len(text) <= m.LONGEST
    assert len(m.pairs()) == len({tuple(text) for pair in m.pairs() for text in pair}) / 2
    short = m.cut(m.drawn(0, 20, "heads"))
    assert short.shape[1] == m.CUT_TO
    assert bool((short[:, -1] == m.SEPARATOR).all())
