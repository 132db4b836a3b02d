"""What the room of the real model reads and draws."""

from __future__ import annotations

import pytest
import torch
from measured_book.evidence.results import load_results
from measured_book.measuring.measurement import measurements_of
from measured_book.measuring.state import HOLDS, standing
from measured_book.rooms.real_model import figures
from measured_book.rooms.real_model import measure as m
from measured_transformer.viewer.style import ThemedFigure

RESULTS = load_results("real_model")
DRAWN = {
    "plot_parameters": lambda: figures.plot_parameters(RESULTS["parameters"]),
    "plot_atlas": lambda: figures.plot_atlas(RESULTS["attention"]),
    "plot_sink": lambda: figures.plot_sink(RESULTS["attention"]),
    "plot_massive": lambda: figures.plot_massive(RESULTS["stream"]),
    "plot_words": lambda: figures.plot_words(RESULTS["stream"]),
    "plot_layers": lambda: figures.plot_layers(RESULTS["stream"]),
    "plot_alike": lambda: figures.plot_alike(RESULTS["stream"]),
    "plot_features": lambda: figures.plot_features(RESULTS["features"]),
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


def test_what_may_be_said_of_a_place_is_true_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(m, "OFTEN", 1)
    monkeypatch.setattr(m, "PLACES", 3)
    others = [[1, 8, 8, 2]] * 20  # so that few sentences have the words in question
    sentences = [[1, 5, 6, 7, 2], *others, [1, 5, 9, 7, 2]]
    kinds, held = m.asked_for(sentences, [5, 6, 7])
    told = {
        kind: {
            tuple(row.nonzero()[:, 0].tolist())
            for name, row in zip(kinds, held, strict=True)
            if name == kind
        }
        for kind in m.ASKED
    }
    assert told["token"] == {(0, 43), (2, 45)}  # 5 and 7; 6 does not come in both halves
    assert told["before"] == {(1, 44)}
    assert told["after"] == {(1, 44)}
    assert told["position"] >= {(2, 45)}
    assert told["sentence"] == {(0, 43), (2, 45)}  # 7 two before, 5 two behind


def test_knowing_the_token_explains_what_the_token_decides() -> None:
    tokens = torch.tensor([3, 4, 3, 4, 3, 4, 5])
    held = torch.tensor([False, False, False, False, True, True, True])
    values = torch.stack((tokens == 3, torch.arange(7) % 3 == 0), 1).float()
    assert m.token_means(values, tokens, held)[:, 0].tolist() == [1, 0, 0.5]  # 5 is unknown
    shares = m.share_by_token(values, tokens, held)
    assert float(shares[0]) == pytest.approx(1 - 0.25 / (2 / 3))
    assert float(shares[1]) < 0.5
    assert m.explained_by_token(values[:6], tokens[:6], held[:6]) < 1


def test_states_are_sized_and_noise_has_their_covariance() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3000, 4, generator=generator) @ torch.randn(4, 4, generator=generator) + 3
    fitted = torch.arange(3000) < 2000
    y = m.sized(x, fitted)
    assert y[fitted].mean(0).abs().max() < 1e-5
    assert float(y[fitted].square().sum(1).mean()) == pytest.approx(1, abs=1e-5)
    noise = m.noise_like(y[fitted], 20000, generator)
    assert torch.allclose(noise.T @ noise / 20000, y[fitted].T @ y[fitted] / 2000, atol=0.02)


def test_the_states_of_the_middle_are_those_of_the_stream() -> None:
    pytest.importorskip(m.PACKAGE, reason="the checkpoint is not installed")
    states, neurons = m.middle_of_minilm(8)
    sentences, paragraph = m.reading(8)
    assert len(sentences) == len(set(sentences)) == len(paragraph)
    assert int(paragraph.max()) + 1 == 8
    assert len(neurons) == len(states) == sum(len(one) - 2 for one in sentences)
    start = sum(len(one) - 2 for one in sentences[:7])
    whole = m.stream_of(m.minilm(), torch.tensor([sentences[7]]))[m.MIDDLE, 0, 1:-1]
    assert torch.allclose(states[start : start + len(whole)], whole, atol=1e-4)
