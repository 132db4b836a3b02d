"""What the network computes: against PyTorch's layers, closed forms, differences, and counts by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from measured_book.evidence.results import load_results
from measured_book.rooms.feed_forward import measure as ff
from measured_transformer.analysis.ablation import loss
from measured_transformer.analysis.handmade import heads_model, induction_model
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.models.config import Config
from measured_transformer.parts.block import Block
from measured_transformer.parts.feedforward import FeedForward
from measured_transformer.tasks.bit_pairs import BitPairs
from measured_transformer.tasks.induction import Induction
from measured_transformer.tasks.modular import ModularAddition
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training.loop import evaluate, make_model
from measured_transformer.training.seeding import make_generator
from torch.nn import functional as F

RESULTS = load_results("feed_forward")
SMALL = Config(vocab=6, d_model=12, n_heads=3, n_layers=2, positions="learned", max_length=5)


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


def off_linear(outputs, signs):
    """What no map of all the signs of a sequence, linear but for a constant, gives at any position."""
    columns = torch.cat([signs.flatten(1), torch.ones(len(signs), 1)], dim=1).double()
    outputs = outputs.flatten(1).double()
    fit = torch.linalg.lstsq(columns, outputs).solution
    return float((columns @ fit - outputs).abs().max())


def test_attention_alone_is_a_linear_map_of_a_lone_token_and_of_no_other():
    task = BitPairs(bits=4)
    config = Config(vocab=16, d_model=12, n_heads=2, n_layers=2, positions="none", norm="none")

    def outputs(network, length):
        model = make_model(config, causal=False, seed=0).eval()
        ff.Substituted("whole" if network else "none", bits=4)(model)
        with torch.no_grad():
            for block in model.blocks:  # initial weights are so small that nothing bends by much
                for layer in (block.attention.query, block.attention.key):
                    layer.weight.mul_(8)
        seen = []
        with intervene(model, {"blocks.1.residual_post": lambda x: seen.append(x) or x}):
            ff.accuracy_at(model, task, length=length, seed=0)
        batch = task.batch(make_generator(0, f"evaluation at {length}"), 256, length=length)
        return off_linear(seen[-1], task.signs()[batch.inputs])

    assert outputs(network=False, length=1) < 1e-5  # one weight, a one
    assert outputs(network=False, length=8) > 1e-2
    assert outputs(network=True, length=1) > 1e-2


def test_accuracy_counts_right_answers():
    task = BitPairs(bits=4)
    config = Config(vocab=16, d_model=16, n_layers=1, n_heads=2, positions="none")
    model = make_model(config, causal=False, seed=0).eval()
    batch = task.batch(make_generator(3, "evaluation at 5"), 256, length=5)
    with torch.no_grad():
        answers = model(batch.inputs).argmax(-1)
    right = sum(answers[row, t] == batch.targets[row, t] for row in range(256) for t in range(5))
    assert ff.accuracy_at(model, task, length=5, seed=3) == pytest.approx(int(right) / 1280)


def per_block(name, task):
    config, prepare = ff.arm(task, name)
    model = make_model(config, causal=task.causal, seed=0)
    prepare(model)
    parts = [(b.attention, b.feedforward) for b in model.modules() if isinstance(b, Block)]
    return [sum(p.numel() for part in pair for p in part.parameters()) for pair in parts]


@pytest.mark.parametrize("task", ff.JOBS.values(), ids=ff.JOBS)
def test_what_stays_makes_up_for_what_goes(task):
    whole = sum(per_block("whole", task))
    for name in ("heads", "layers", "neurons", "linear"):
        assert sum(per_block(name, task)) == pytest.approx(whole, rel=0.02)
    assert sum(per_block("removed", task)) == pytest.approx(whole / 3, rel=0.02)
    for name in ff.ARMS:
        assert ff.weights(task, name) == pytest.approx(ff.weights(task, "whole"), rel=0.02) or (
            name == "removed"
        )


def test_tokens_given_as_bits_keep_their_vectors():
    task = ff.JOBS["table"]
    for name in ff.ARMS:
        config, prepare = ff.arm(task, name)
        model = make_model(config, causal=False, seed=3)
        prepare(model)
        table = model.token_embedding.weight
        assert not table.requires_grad
        signs = BitPairs(bits=8).signs()[:128, :7]  # the same bits, lowest first
        fit = torch.linalg.lstsq(signs, table).solution
        torch.testing.assert_close(signs @ fit, table, atol=1e-5, rtol=1e-5)


# --- by hand --------------------------------------------------------------------------------------


def test_two_heads_are_torch_attention_and_tell_different_bits():
    looks, mean, out = ff.two_heads(8.0).T
    bits = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]])
    values = bits.double()[:, None, :, None]
    for score, found in ((8.0, looks), (0.0, mean)):
        query = torch.full((4, 1, 1, 1), score, dtype=torch.float64)
        by_torch = F.scaled_dot_product_attention(query, values, values, scale=1.0)
        assert torch.allclose(by_torch.flatten(), found)
    truth = (bits[:, 0] ^ bits[:, 1]).double()
    assert (out - truth).abs().max() < 1e-3
    # one over one plus e to the score is what the wrong bit keeps
    assert looks[1] == pytest.approx(1 / (1 + math.exp(-8)))
    assert (ff.two_heads(0.0)[:, 2] == 0).all(), "without a preference there is nothing to tell"


def test_the_numbers_in_the_table_of_the_page():
    found = ff.two_heads(6.0)
    assert [round(float(v), 4) for v in found[:, 0]] == [0, 0.9975, 0.9975, 1]
    assert [round(float(v), 3) for v in found[:, 2]] == [0, 0.995, 0.995, 0]


# --- taken away -----------------------------------------------------------------------------------


def fresh_on(task):
    """A model with large random weights, sequences held out, and those that means are taken over."""
    length = task.length if task.causal else 5
    config = SMALL.replace(vocab=task.vocab, max_length=length)
    model = make_model(config, causal=task.causal, seed=1).double()
    with torch.no_grad():
        for parameter in model.blocks.parameters():
            parameter.mul_(2)
    unseen = replace(task, part="validation") if task.causal else task
    batches = (
        unseen.batch(make_generator(4, "evaluation"), 40),
        task.batch(make_generator(4, "reference"), 40),
    )
    return model, *batches


@pytest.mark.parametrize("task", [Reversal(6, 5), ModularAddition(7, 0.6)], ids=["all", "split"])
def test_replacing_by_the_mean_is_done_for_one_block_at_a_time(task):
    model, batch, reference = fresh_on(task)
    found = ff.replaced(model, task, seed=4, size=40)
    with capture(model, "blocks.*.out") as seen:
        model(reference.inputs)
    means = {name: value.mean(0) for name, value in seen.items()}
    whole = loss(model, batch)

    def without(*names):
        with intervene(model, {k: (lambda now, m=means[k]: m.expand_as(now)) for k in names}):
            return loss(model, batch) - whole

    for i in range(2):
        assert found.network[i] == pytest.approx(without(f"blocks.{i}.feedforward.out"))
        assert found.attention[i] == pytest.approx(without(f"blocks.{i}.attention.out"))
    networks = [f"blocks.{i}.feedforward.out" for i in range(2)]
    assert found.networks == pytest.approx(without(*networks))
    assert found.attentions == pytest.approx(
        without(*(name.replace("feedforward", "attention") for name in networks))
    )
    assert abs(found.networks) > 1e-3


def test_a_model_by_hand_lives_by_its_attention():
    task = Reversal(5, 4)
    model = heads_model(["mirror"], vocab=5, length=4)
    found = ff.replaced(model, task, seed=0)
    assert found.network == pytest.approx([0.0])
    # the mean over sequences says nothing about the one at hand: what is left is a guess among five
    left = math.log(5) - evaluate(model, task, seed=0).loss
    assert found.attention[0] == pytest.approx(left, abs=0.02)
    assert left > 0.5


@pytest.mark.parametrize("task", [Reversal(6, 5), ModularAddition(7, 0.6)], ids=["all", "split"])
def test_frozen_heads_keep_the_mean_of_their_patterns(task):
    model, batch, reference = fresh_on(task)
    with capture(model, "*.pattern") as seen:
        model(reference.inputs)
    means = {name: pattern.mean(0) for name, pattern in seen.items()}
    held = {name: (lambda now, own=p: own.expand_as(now)) for name, p in means.items()}
    with intervene(model, held):
        right = model(batch.inputs).argmax(-1) == batch.targets
    expected = float(right[batch.scored].double().mean())
    assert ff.accuracy_frozen(model, task, seed=4, size=40) == pytest.approx(expected)


def test_a_head_that_looks_at_fixed_places_may_be_frozen_and_one_that_asks_may_not():
    task = Reversal(5, 4)
    model = heads_model(["mirror"], vocab=5, length=4)
    assert ff.accuracy_frozen(model, task, seed=0) == evaluate(model, task, seed=0).accuracy == 1
    asking, repeats = induction_model(vocab=8, length=12), Induction(8, 12, shortest=3, longest=4)
    whole = evaluate(asking, repeats, seed=0).accuracy
    assert ff.accuracy_frozen(asking, repeats, seed=0) < whole - 0.1


def test_whole_models_learn_every_job_that_is_not_text():
    """On each seed, but for one model that has learned three quarters of the sums."""
    whole = RESULTS["jobs"].accuracy.sel(arm="whole")
    learned = whole.drop_sel(job="text") > 0.95
    assert learned.drop_sel(job="sums").all()
    assert int(learned.sel(job="sums").sum()) >= 9
    assert float(whole.sel(job="sums").min()) > 0.7
    assert (RESULTS["company"].accuracy.sel(arm="whole") > 0.99).all()


def test_without_attention_nothing_that_has_to_be_moved_is_known():
    losses = RESULTS["jobs"].loss.sel(arm="neurons")
    for job, floor in (("copy", 128), ("recall", 8), ("both", 8), ("sums", 23)):
        assert (losses.sel(job=job) > math.log(floor) - 0.1).all()
