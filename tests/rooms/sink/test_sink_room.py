"""What the room of sinks computes and draws."""

from __future__ import annotations

import pytest
import torch
from measured_book.evidence.results import load_results
from measured_book.rooms.sink import figures, passes
from measured_book.rooms.sink import measure as m
from measured_book.smollm2.model import is_installed
from measured_transformer.internals.capture import capture
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.viewer.style import ThemedFigure

RESULTS = load_results("sink")
DRAWN = {
    "plot_looking": lambda: figures.plot_looking(RESULTS["looking"]),
    "plot_alone": lambda: figures.plot_alone(RESULTS["looking"]),
    "plot_forbidden": lambda: figures.plot_forbidden(RESULTS["forbidden"]),
    "plot_massive": lambda: figures.plot_massive(RESULTS["massive"]),
    "plot_shock": lambda: figures.plot_shock(RESULTS["massive"]),
    "plot_windows": lambda: figures.plot_windows(RESULTS["windows"]),
    "plot_dormant": lambda: figures.plot_dormant(RESULTS["dormant"]),
}
LENGTH = 12
TOKENS = torch.randint(50, (3, LENGTH), generator=torch.Generator().manual_seed(0))


@pytest.fixture
def model() -> Decoder:
    torch.manual_seed(0)
    config = Config(
        vocab=50, d_model=32, n_layers=3, n_heads=4, n_kv_heads=2, positions="rotary", norm="rms"
    )
    found = Decoder(config).eval().requires_grad_(False)
    for weight in found.parameters():
        weight.add_(0.1 * torch.randn(weight.shape))
    return found


@pytest.mark.parametrize("name", DRAWN)
def test_figure_is_drawn_for_both_themes(name: str) -> None:
    drawn = DRAWN[name]()
    assert isinstance(drawn, ThemedFigure)
    assert drawn.light != drawn.dark


def test_every_figure_function_is_tried() -> None:
    assert {name for name in vars(figures) if name.startswith("plot_")} == set(DRAWN)


def test_a_pass_in_steps_is_the_models_own(model: Decoder) -> None:
    kept = passes.states(model, TOKENS)
    assert kept.shape == (4, 3, LENGTH, 32)
    torch.testing.assert_close(model.unembed(kept[-1]), model(TOKENS))
    torch.testing.assert_close(passes.onward(model, kept[1], start=1), kept[-1])
    right = torch.nn.functional.cross_entropy(
        model(TOKENS)[:, 4:-1].flatten(0, 1), TOKENS[:, 5:].flatten()
    )
    assert passes.loss(model, kept[-1], TOKENS, since=5) == pytest.approx(float(right), rel=1e-5)


def test_a_token_that_sees_only_itself_has_the_state_of_a_first_token(model: Decoder) -> None:
    biases = passes.from_block(passes.alone(5, LENGTH), 0)
    state = passes.states(model, TOKENS, biases=biases)[:, :, 5]
    torch.testing.assert_close(state, passes.states(model, TOKENS[:, 5:6])[:, :, 0])
    other = passes.states(model, TOKENS)[:, :, 5]
    assert not torch.allclose(state[-1], other[-1], atol=1e-3)


def test_a_forbidden_first_key_makes_a_first_token_of_the_second(model: Decoder) -> None:
    biases = passes.from_block(passes.forbidding(0, LENGTH), 0)
    state = passes.states(model, TOKENS, biases=biases)[-1]
    torch.testing.assert_close(state[:, 1:], passes.states(model, TOKENS[:, 1:])[-1])
    late = passes.from_block(passes.forbidding(0, LENGTH), 2)
    before = passes.states(model, TOKENS)
    torch.testing.assert_close(passes.states(model, TOKENS, biases=late)[:3], before[:3])


def test_a_window_keeps_its_sinks() -> None:
    seen = passes.windowed(3, 1, 6) == 0
    assert seen[5].tolist() == [True, False, False, True, True, True]
    assert (passes.windowed(3, 0, 6)[5] == 0).tolist() == [False] * 3 + [True] * 3


def test_renumbered_queries_see_the_first_key_at_the_distance_of_the_window(model: Decoder) -> None:
    name = "blocks.0.attention.scores"
    with capture(model, name) as true:
        model(TOKENS)
    with passes.renumbered(model, 4), capture(model, name) as moved:
        model(TOKENS)
    assert torch.equal(true[name][..., 1:], moved[name][..., 1:])
    torch.testing.assert_close(true[name][:, :, :5, 0], moved[name][:, :, :5, 0])
    # A text whose query at position 4 is that of a later one has the score that the later one gets.
    for later in (7, 11):
        tokens = torch.cat([TOKENS[:, :4], TOKENS[:, later : later + 1]], 1)
        with capture(model, name) as near:
            model(tokens)
        torch.testing.assert_close(near[name][:, :, 4, 0], moved[name][:, :, later, 0])


def test_silent_heads_write_nothing(model: Decoder) -> None:
    with passes.silent(model, [(0, 1), (2, 0)]), capture(model, "blocks.*.attention.mixed") as seen:
        model(TOKENS)
    assert (seen["blocks.0.attention.mixed"][:, 1] == 0).all()
    assert (seen["blocks.2.attention.mixed"][:, 0] == 0).all()
    assert (seen["blocks.1.attention.mixed"] != 0).any(-1).all()


def test_what_attention_fetches_adds_up(model: Decoder) -> None:
    ratio, share = m.fetched(model, TOKENS)
    assert ratio.shape == share.shape == (3, 4)
    assert ((share > 0) & (share < 1)).all()
    assert (ratio > 0).all()


def test_other_texts_of_a_draw_are_others() -> None:
    if not is_installed():
        pytest.skip("the model is not installed")
    one, other = m.texts(3), m.texts(3, other=True)
    assert one.shape == other.shape == (m.TEXTS, m.LENGTH)
    assert not (one[:, None] == other[None]).all(-1).any()
    for start in m.STARTS:
        begun = m.begun(one, start, 3)
        assert torch.equal(begun[:, 1:], one[:, 1:])
