"""What the network computes: against PyTorch's layers, closed forms, differences, and counts by hand."""

import math

import numpy as np
import pytest
import torch
from measured_transformer.chapters.feed_forward import measure as ff
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.parts.feedforward import FeedForward
from measured_transformer.tasks.bit_pairs import BitPairs
from measured_transformer.training.loop import make_model
from measured_transformer.training.seeding import make_generator
from measured_transformer.variants.feedforward import FixedEmbeddings


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_the_formula_is_pytorchs_layers_and_each_part_counts(activation):
    for seed in range(10):
        parts = ff.drawn(seed, activation=activation)
        oracle = ff.as_torch_layers(parts.network)(parts.x)
        assert torch.allclose(ff.formula(parts.network, parts.x), oracle, atol=1e-12)
        for left_out in ("b1", "b2", "activation"):
            without = ff.formula(parts.network, parts.x, without=left_out)
            assert (without - oracle).abs().max() > 1e-3


def test_what_the_formula_does_not_cover_is_refused():
    parts = ff.drawn(0)
    with pytest.raises(ValueError, match="without must be"):
        ff.formula(parts.network, parts.x, without="b3")
    with pytest.raises(ValueError, match="without a gate"):
        ff.formula(FeedForward(4, 8, activation="swiglu"), torch.zeros(1, 4))
    with pytest.raises(ValueError, match="'relu' or 'gelu'"):
        ff.as_torch_layers(FeedForward(4, 8, activation="silu"))


def test_a_block_adds_its_network_and_another_activation_does_not_fit():
    for seed in range(10):
        assert ff.block_error(seed, "silu") < 1e-12
        assert ff.block_error(seed, "silu", other="gelu") > 1e-3


def test_blocks_between_positions_are_those_of_differences():
    parts = ff.drawn(4, batch=1)
    blocks = ff.blocks_between(parts.attention, parts.x)
    n = parts.x.shape[1]
    moved = torch.zeros_like(parts.x)
    step = 1e-6
    for seen in range(n):
        squares = torch.zeros(n, dtype=torch.float64)
        for entry in range(parts.x.shape[2]):
            moved = parts.x.clone()
            moved[0, seen, entry] += step
            with torch.no_grad():
                change = parts.attention(moved, causal=True) - parts.attention(parts.x, causal=True)
            squares += (change[0] / step).square().sum(1)
        assert torch.allclose(blocks[:, seen], squares.sqrt(), atol=1e-5)
    assert ff.smallest_seen(blocks) > 1e-4
    assert ff.largest_above(blocks) == 0
    unmasked = ff.blocks_between(parts.attention, parts.x, causal=False)
    assert ff.largest_above(unmasked) > 1e-3
    assert ff.largest_above(torch.tensor([[5.0, 2.0, 3.0], [9.0, 5.0, 1.0], [9.0, 9.0, 5.0]])) == 3
    assert ff.largest_between(blocks) == pytest.approx(float(blocks.tril(-1).max()))
    own = ff.blocks_between(parts.network, parts.x)
    assert ff.largest_between(own) == 0
    assert ff.smallest_seen(own) == 0
    with pytest.raises(ValueError, match="one sequence"):
        ff.blocks_between(parts.network, torch.zeros(2, 3, parts.x.shape[2]))


def test_shuffling_changes_attention_and_not_the_network():
    for seed in range(10):
        parts = ff.drawn(seed)
        assert ff.shuffle_error(parts.network, parts.x, seed) < 1e-12
        assert ff.shuffle_error(parts.attention, parts.x, seed) > 1e-3


def test_attention_is_linear_in_what_is_held_fixed():
    found = [ff.superposition(seed) for seed in range(20)]
    assert max(max(one.fixed, one.span) for one in found) < 1e-12
    assert min(min(one.whole, one.bent, one.span_behind) for one in found) > 1e-3


def test_what_is_off_a_span_is_the_residual_of_least_squares():
    torch.manual_seed(0)
    vectors, spanning = torch.randn(3, 6).double(), torch.randn(2, 6).double()
    fit = torch.linalg.lstsq(spanning.T, vectors.T).solution
    assert ff.off_span(vectors, spanning) == pytest.approx(
        float((vectors.T - spanning.T @ fit).abs().max())
    )
    assert ff.off_span(spanning.sum(0)[None], spanning) < 1e-12


def test_the_network_by_hand_is_what_the_text_calculates():
    network = ff.by_hand()
    for x, wrote in (
        ((2.0, 1.0), [-1.0, 1.0]),
        ((1.0, 3.0), [-4.0, 2.0]),
        ((-1.0, 0.0), [1.0, 3.0]),
    ):
        assert network(torch.tensor(x)).tolist() == wrote


def test_more_neurons_bend_closer_and_one_is_a_single_bend():
    x = np.linspace(-3, 3, 121)
    errors = [ff.fitted(m, x, seed=0).error for m in (1, 2, 8, 64)]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.02
    one = ff.fitted(1, x, seed=0)
    slopes = np.diff(one.values) / np.diff(x)
    flat = np.abs(slopes) < 1e-9
    steep = slopes[~flat]
    assert flat.any()
    assert (np.abs(steep - np.median(steep)) < 1e-6).sum() >= len(steep) - 1
    with pytest.raises(ValueError, match="at least one neuron"):
        ff.fitted(0, x, seed=0)


def test_derivatives_are_those_of_differences_and_of_the_closed_form():
    x = torch.linspace(-5, 5, 57, dtype=torch.float64)
    for name in ("gelu", "silu", "gelu_tanh"):
        f = ff.activation_function(name)
        central = (f(x + 1e-5) - f(x - 1e-5)) / 2e-5
        assert torch.allclose(ff.derivative(name, x), central, atol=1e-8)
    assert torch.allclose(ff.derivative("gelu", x), ff.gelu_derivative(x), atol=1e-12)
    assert (ff.derivative("gelu", x) - ff.gelu_derivative(x, second_term=False)).abs().max() > 0.1
    with pytest.raises(ValueError, match="order must be"):
        ff.derivative("gelu", x, order=3)


def test_constants_of_activations():
    assert ff.largest_jump("relu") == 1
    assert ff.largest_jump("gelu") < 1e-6
    assert ff.lipschitz("relu") == 1
    # GELU is steepest at root 2, its derivative at 0, where it is twice the density
    root = torch.tensor([math.sqrt(2)], dtype=torch.float64)
    assert ff.lipschitz("gelu") == pytest.approx(float(ff.gelu_derivative(root)), abs=1e-8)
    assert ff.lipschitz("gelu", of_derivative=True) == pytest.approx(2 / math.sqrt(2 * math.pi))
    assert ff.lipschitz("relu", of_derivative=True) == math.inf
    zero = torch.zeros(1, dtype=torch.float64)
    assert ff.approximation_error("gelu_tanh", zero).item() == 0


def test_published_models_have_their_published_sizes():
    found = {name: model.count for name, model in ff.published().items()}
    assert found["BERT-base"].total == 109_482_240
    assert found["GPT-2"].total == 124_439_808
    assert found["LLaMA-7B"].total == 6_738_415_616
    for count in found.values():
        assert sum(ff.whereabouts(count).values()) == count.total
    small = ff.published()["GPT-2"].config.replace(vocab=7, d_model=24, n_layers=2, max_length=5)
    model = Decoder(small)
    inside = {
        name: sum(p.numel() for n, p in model.named_parameters() if f".{name}." in n)
        for name in ("attention", "feedforward")
    }
    ratio = ff.Published(small, "decoder").network_over_attention
    assert ratio == pytest.approx(inside["feedforward"] / inside["attention"])


def off_linear(outputs, signs):
    """What no map of all the signs of a sequence, linear but for a constant, gives at any position."""
    columns = torch.cat([signs.flatten(1), torch.ones(len(signs), 1)], dim=1).double()
    outputs = outputs.flatten(1).double()
    fit = torch.linalg.lstsq(columns, outputs).solution
    return float((columns @ fit - outputs).abs().max())


def test_frozen_attention_alone_is_a_linear_map_of_the_bits():
    task = BitPairs(bits=4)
    config = Config(vocab=16, d_model=12, n_heads=2, n_layers=2, positions="none", norm="none")

    def outputs(network, length, frozen):
        model = make_model(config, causal=False, seed=0).eval()
        FixedEmbeddings(network=network, bits=4)(model)
        with torch.no_grad():
            for block in model.blocks:  # fresh weights are so small that nothing bends by much
                for layer in (block.attention.query, block.attention.key):
                    layer.weight.mul_(8)
        seen = []
        with intervene(model, {"blocks.1.residual_post": lambda x: seen.append(x) or x}):
            ff.accuracy_at(model, task, length=length, seed=0, frozen=frozen)
        batch = task.batch(make_generator(0, f"evaluation at {length}"), 256, length=length)
        return off_linear(seen[-1], task.signs()[batch.inputs])

    assert outputs(network=False, length=8, frozen=True) < 1e-5
    assert outputs(network=False, length=1, frozen=False) < 1e-5  # a lone token: one weight, a one
    assert outputs(network=False, length=8, frozen=False) > 1e-2
    assert outputs(network=True, length=8, frozen=True) > 1e-2


def test_accuracy_counts_right_answers():
    task = BitPairs(bits=4)
    config = Config(vocab=16, d_model=16, n_layers=1, n_heads=2, positions="none")
    model = make_model(config, causal=False, seed=0).eval()
    batch = task.batch(make_generator(3, "evaluation at 5"), 256, length=5)
    with torch.no_grad():
        answers = model(batch.inputs).argmax(-1)
    right = sum(answers[row, t] == batch.targets[row, t] for row in range(256) for t in range(5))
    assert ff.accuracy_at(model, task, length=5, seed=3) == pytest.approx(int(right) / 1280)


def test_a_frozen_pattern_is_the_mean_of_those_that_were():
    task = BitPairs(bits=4)
    config = Config(vocab=16, d_model=16, n_layers=1, n_heads=2, positions="none")
    model = make_model(config, causal=False, seed=0).eval()
    shown = []
    with torch.no_grad():
        ff.accuracy_at(model, task, length=5, seed=3)
    with intervene(model, {"blocks.0.attention.out": lambda x: shown.append(x) or x}):
        ff.accuracy_at(model, task, length=5, seed=3, frozen=True)
    free, held = shown
    batch = task.batch(make_generator(3, "evaluation at 5"), 256, length=5)
    with capture(model, "*.pattern", "*.values") as seen, torch.no_grad():
        model(batch.inputs)
    pattern = seen["blocks.0.attention.pattern"].mean(0, keepdim=True)
    mixed = (pattern @ seen["blocks.0.attention.values"]).transpose(1, 2).flatten(2)
    with torch.no_grad():
        expected = model.blocks[0].attention.output(mixed)
    assert torch.allclose(held, expected, atol=1e-6)
    assert not torch.allclose(free, expected, atol=1e-3)
