"""What the room of its numbers computes and draws."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from measured_book.evidence.results import load_results
from measured_book.rooms.its_numbers import features, figures, neurons, passages, rounding
from measured_book.rooms.its_numbers import measure as m
from measured_book.smollm2.model import is_installed, smollm2
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.viewer.style import ThemedFigure

RESULTS = load_results("its_numbers")
DRAWN = {
    "plot_sizes": lambda: figures.plot_sizes(RESULTS["sizes"]),
    "plot_sparse": lambda: figures.plot_sparse(RESULTS["sparse"]),
    "plot_neurons": lambda: figures.plot_neurons(RESULTS["neurons"]),
    "plot_features": lambda: figures.plot_features(RESULTS["features"], RESULTS["controls"]),
    "plot_weights": lambda: figures.plot_weights(RESULTS["weights"]),
    "plot_cache": lambda: figures.plot_cache(RESULTS["cache"]),
    "plot_drafts": lambda: figures.plot_drafts(RESULTS["drafts"]),
    "plot_confidence": lambda: figures.plot_confidence(RESULTS["reading"]),
}
TOKENS = torch.randint(50, (3, 12), generator=torch.Generator().manual_seed(0))


@pytest.fixture
def model() -> Decoder:
    torch.manual_seed(0)
    config = Config(
        vocab=50, d_model=32, n_layers=2, n_heads=4, n_kv_heads=2, positions="rotary", norm="rms",
        d_ff=64, activation="swiglu", bias=False,
    )  # fmt: skip
    return Decoder(config).eval().requires_grad_(False)


@pytest.mark.parametrize("name", DRAWN)
def test_figure_is_drawn_for_both_themes(name: str) -> None:
    drawn = DRAWN[name]()
    assert isinstance(drawn, ThemedFigure)
    assert drawn.light != drawn.dark


def test_every_figure_function_is_tried() -> None:
    assert {name for name in vars(figures) if name.startswith("plot_")} == set(DRAWN)


def test_parts_add_up_to_the_model(model: Decoder) -> None:
    count = m.parameters(model)
    assert sum(count.values()) == sum(weight.numel() for weight in model.parameters())
    assert count["network"] == 2 * 3 * 32 * 64
    products = m.multiplications(model, 7)
    assert products["attention"] - count["attention"] == 2 * 8 * 2 * 32
    assert products["embedding"] == 50 * 32


def test_steps_keep_the_ends_and_move_by_half_a_step_at_most() -> None:
    values = torch.randn(5, 32, generator=torch.Generator().manual_seed(1))
    found = rounding.steps(values, 3, -1)
    assert torch.equal(found.amin(-1), values.amin(-1))
    torch.testing.assert_close(found.amax(-1), values.amax(-1))
    half = (values.amax(-1, keepdim=True) - values.amin(-1, keepdim=True)) / 14
    assert ((found - values).abs() <= half + 1e-6).all()
    assert all(len(row.unique()) <= 8 for row in found)
    torch.testing.assert_close(rounding.steps(found, 3, -1), found)
    assert torch.equal(rounding.steps(torch.zeros(2, 3), 2, -1), torch.zeros(2, 3))


def test_symmetric_levels_lie_alike_around_zero() -> None:
    values = torch.randn(4, 64, generator=torch.Generator().manual_seed(2))
    found = rounding.symmetric(values, 4, -1)
    torch.testing.assert_close(rounding.symmetric(-values, 4, -1), -found)
    assert all(len(row.unique()) <= 15 for row in found)


def test_grids_move_less_with_smaller_groups_and_more_bits(model: Decoder) -> None:
    eight, group, row = (
        rounding.moved(model, rounding.rounded(model, grid))
        for grid in ("eight by row", "four by group", "four by row")
    )
    assert 0 < eight < group <= row
    own = rounding.rounded(model, "own levels")
    assert rounding.moved(own, rounding.rounded(own, "own levels")) < 1e-6
    assert torch.equal(own.token_embedding.weight, model.token_embedding.weight)
    with pytest.raises(ValueError, match="expected a grid"):
        rounding.rounded_matrix(torch.ones(2, 32), "two by row")
    with pytest.raises(ValueError, match="multiple of 32"):
        rounding.rounded_matrix(torch.ones(2, 33), "four by group")


def test_the_cache_is_rounded_along_the_axis_that_is_named(model: Decoder) -> None:
    names = ("blocks.0.attention.rotated_keys", "blocks.0.attention.values")
    with capture(model, *names) as plain:
        model(TOKENS)
    for way, axis in (("by channel", -2), ("by token", -1)):
        for name, what in zip(names, ("keys", "values"), strict=True):
            changes = rounding.of_cache(f"{what} {way}", 2)
            with intervene(model, changes), capture(model, *names) as seen:
                model(TOKENS)
            torch.testing.assert_close(seen[name], rounding.steps(plain[name], 2, axis))
            (other,) = set(names) - {name}
            assert torch.equal(seen[other], plain[other])
    with intervene(model, rounding.of_cache("fifth exact", 2)), capture(model, *names) as seen:
        model(TOKENS)
    for name in names:
        same = (seen[name] == plain[name]).all(-1).all(0).all(0)
        assert same.tolist() == [i == 4 for i in range(12)]
    with pytest.raises(ValueError, match="keys by channel"):
        rounding.of_cache("keys", 2)


def test_the_smallest_activations_become_zero(model: Decoder) -> None:
    name = "blocks.0.feedforward.neurons"
    with capture(model, name) as plain:
        model(TOKENS)
    change = {neurons.NEURONS: neurons.smallest_to_zero(0.75)}
    with intervene(model, change), capture(model, name) as seen:
        model(TOKENS)
    gone = seen[name] == 0
    assert (gone.sum(-1) == 48).all()
    sizes = plain[name].abs()
    assert (sizes.masked_fill(~gone, 0).amax(-1) <= sizes.masked_fill(gone, 9).amin(-1)).all()
    change = {neurons.NEURONS: neurons.any_to_zero(0.5, torch.Generator().manual_seed(0))}
    with intervene(model, change), capture(model, name) as seen:
        model(TOKENS)
    assert ((seen[name] == 0).sum(-1) == 32).all()


def test_dead_neurons_are_told() -> None:
    active = torch.randn(40, 10, generator=torch.Generator().manual_seed(3))
    active[:, [2, 7]] *= 0.001
    assert neurons.dead(active).nonzero()[:, 0].tolist() == [2, 7]


def test_what_is_written_is_compared_with_all_words() -> None:
    readers = torch.eye(4)
    written = torch.tensor([[3.0, 1.0, 2.0, 0.0]])
    assert neurons.exceeded(written, readers, torch.tensor([[2.5, 0.0, 0.0, 0.0]])) == 1.0
    assert neurons.exceeded(written, readers, torch.tensor([[0.5, 0.0, 0.0, 0.0]])) == 0.5


def test_drafts_never_look_ahead() -> None:
    text = torch.randint(4, (60,), generator=torch.Generator().manual_seed(4)).tolist()
    for length in (1, 2, 3):
        found = m.copied(text, length, 8)
        assert found
        for place, token in found:
            assert m.copied([*text[: place + 1], -1, -2], length, 8)[-1] == (place, token)


def test_chances_are_the_models_own(model: Decoder) -> None:
    found = m.chances(model, TOKENS[0], chunk=5)
    torch.testing.assert_close(found, model(TOKENS[:1])[0].log_softmax(-1))
    assert passages.loss(model, TOKENS) == pytest.approx(
        float(
            torch.nn.functional.cross_entropy(
                model(TOKENS)[:, 7:-1].flatten(0, 1), TOKENS[:, 8:].flatten()
            )
        ),
        rel=1e-5,
    )


def test_compressors_give_the_text_back_smaller() -> None:
    text = b"to be or not to be, that is the question " * 20
    assert 0 < m.deflated(text) < len(text) / 5
    assert 0 < m.packed(text) < len(text) / 5


def test_the_model_lies_on_its_own_levels() -> None:
    if not is_installed():
        pytest.skip("the model is not installed")
    weight = smollm2().model.blocks[3].feedforward.up.weight
    own = rounding.rounded_matrix(weight, "own levels")
    assert float((own - weight).norm() / weight.norm()) < 0.01


def test_noise_has_the_mean_and_the_covariance_of_what_it_stands_for() -> None:
    draws = torch.Generator().manual_seed(0)
    x = torch.randn(4000, 6, generator=draws) @ torch.randn(6, 6, generator=draws) + 3
    found = features.noise_like(x, 4000, 0)
    torch.testing.assert_close(found.mean(0), x.mean(0), atol=0.2, rtol=0)
    torch.testing.assert_close(found.T.cov(), x.T.cov(), atol=0.6, rtol=0.1)
    assert not torch.allclose(found, x)


def test_a_redrawn_network_keeps_singular_values_alone(model: Decoder) -> None:
    own = model.blocks[0].feedforward
    other = features.redrawn(own, 0)
    for one, new in zip(own.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(torch.linalg.svdvals(one), torch.linalg.svdvals(new))
        assert not torch.allclose(one, new)


def test_all_neurons_write_what_the_network_does_and_few_only_some(model: Decoder) -> None:
    x = features.network_inputs(TOKENS, block=2, model=model)
    assert x.shape == (3 * 11, 32)
    with capture(model, "blocks.1.feedforward.out") as seen:
        model(TOKENS)
    network = model.blocks[1].feedforward
    wanted = seen["blocks.1.feedforward.out"][:, 1:].flatten(0, 1)
    torch.testing.assert_close(features.written(network, x), wanted)
    usual = features.activations(network, x).mean(0)
    torch.testing.assert_close(features.of_strongest(network, usual, x, 64), wanted)
    torch.testing.assert_close(
        features.of_strongest(network, usual, x, 0), network.down(usual).expand_as(wanted)
    )
    few = features.explained(wanted, features.of_strongest(network, usual, x, 16))
    assert 0 < few < 1


def test_only_what_stands_behind_the_first_token_is_rewritten() -> None:
    value = torch.randn(2, 4, 3)
    changed = features.behind_the_first(torch.zeros(2, 3, 3), value)
    assert torch.equal(changed[:, 0], value[:, 0])
    assert not changed[:, 1:].any()


def test_half_on_fresh_draws_is_the_smallest_half(
    model: Decoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[int] = []
    monkeypatch.setattr(neurons, "passages", lambda seed: drawn.append(seed) or TOKENS)
    monkeypatch.setattr(neurons, "smollm2", lambda: SimpleNamespace(model=model))
    found = neurons.sparse_again(3)
    assert drawn == [9003]
    with intervene(model, {neurons.NEURONS: neurons.smallest_to_zero(0.5)}):
        assert found["loss"] == neurons.loss(model, TOKENS)
    assert found["whole"] == neurons.loss(model, TOKENS) != found["loss"]
