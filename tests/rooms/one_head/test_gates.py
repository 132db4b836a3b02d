"""Gates agree with ablation one by one, and ranking finds the heads that are needed by hand."""

import itertools
import math

import numpy as np
import pytest
import torch
from measured_book.rooms.one_head.measure import pair_effects
from measured_book.rooms.one_head.pruning import (
    ablation_rises,
    all_but,
    gated,
    gini,
    gradient_importance,
    greedy_order,
    iterative_order,
    keep_by_layer,
    largest_share,
    losses_with,
    order,
    prune_heads,
    pruning_curve,
    random_sets,
    row_losses,
    spread_over_tasks,
    twin_loss,
    twins,
)
from measured_transformer.analysis import ablation
from measured_transformer.analysis.handmade import heads_model
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training.seeding import seeded

TASK = Reversal(5, 6)


def drawn(causal=False, seed=0, **changes):
    config = Config(vocab=5, d_model=16, n_layers=2, n_heads=4, **changes)
    with seeded(seed):
        model = (Decoder if causal else Encoder)(config).double().eval()
        for weight in model.parameters():
            weight.data.add_(0.2 * torch.randn_like(weight))
    return model


def batch(seed, size=12, task=TASK):
    return task.batch(torch.Generator().manual_seed(seed), size)


@pytest.mark.parametrize("way", ["zero", "mean"])
def test_gates_agree_with_ablation_one_by_one(way):
    model, data, other = drawn(), batch(0), batch(1)
    groups = [[], [0], [3], [5, 6], [1, 4, 7], list(range(8))]
    components = ablation.heads(model)
    named = [[components[h] for h in group] for group in groups]
    expected = ablation.effects(
        model, named, data, how=way, reference=other, metric=ablation.loss
    ) + ablation.loss(model, data)
    reference = other if way == "mean" else None
    found = losses_with(model, data, all_but(model, groups), reference=reference)
    assert np.allclose(found, expected, atol=1e-12)
    assert len(set(found.round(9))) == len(groups)


def test_many_sets_go_in_several_passes(monkeypatch):
    model, data = drawn(), batch(0)
    gates = all_but(model, random_sets(8, 3, 7, torch.Generator().manual_seed(0)))
    whole = losses_with(model, data, gates)
    monkeypatch.setattr("measured_book.rooms.one_head.pruning.ROWS_AT_ONCE", 30)
    assert np.allclose(losses_with(model, data, gates), whole, atol=1e-13)


def test_wrong_gates_are_errors():
    model = drawn()
    with pytest.raises(ValueError, match=r"\(row, layer, head\) = \(row, 2, 4\)"):
        losses_with(model, batch(0), torch.ones(1, 4, 2).double())
    with pytest.raises(ValueError, match="from 0 to 7"):
        all_but(model, [[8]])


def test_gradients_are_those_of_finite_differences():
    model, data, step = drawn(), batch(0), 1e-5
    found = gradient_importance(model, data, normalise=False)
    for layer, head in itertools.product(range(2), range(4)):
        sides = []
        for moved in (1 + step, 1 - step):
            gates = torch.ones(1, 2, 4).double()
            gates[0, layer, head] = moved
            with torch.no_grad(), gated(model, gates):
                sides.append(row_losses(model, data))
        expected = ((sides[0] - sides[1]) / (2 * step)).abs().mean()
        assert found[layer, head] == pytest.approx(float(expected), rel=1e-5)
    normal = gradient_importance(model, data)
    assert np.allclose(np.linalg.norm(normal, axis=1), 1)
    assert np.allclose(normal / normal[:, :1], found / found[:, :1])
    assert all(weight.grad is None for weight in model.parameters())
    gone = gradient_importance(model, data, gates=all_but(model, [[1]])[0])
    assert gone[0, 1] == 0


@pytest.mark.parametrize("roles", [("mirror", "uniform", "self"), ("next", "same_token", "mirror")])
def test_the_needed_head_is_ranked_first_and_the_others_are_idle(roles):
    needed = roles.index("mirror")
    model = heads_model(roles, vocab=5, length=6, read=needed)
    with torch.no_grad():
        model.unembedding.weight.mul_(3)
    data, other = batch(0), batch(1)
    for importance in (
        gradient_importance(model, data),
        ablation_rises(model, data, reference=other),
        ablation_rises(model, data, reference=None),
    ):
        assert order(importance)[-1] == needed
        assert importance[0, needed] > 0.2
        assert np.abs(np.delete(importance[0], needed)).max() < 1e-9
    curve = pruning_curve(model, data, order(gradient_importance(model, data)), range(4))
    assert np.allclose(curve[:3], curve[0])
    assert curve[3] == pytest.approx(math.log(5))
    assert largest_share(curve, rise=0.01) == pytest.approx(2 / 3)


def test_twins_look_dispensable_alone_and_are_fatal_together():
    model, data = twins(vocab=5, length=11, strength=6.0)
    one, two, none = twin_loss(5, 6.0), twin_loss(5, 12.0), math.log(6)
    expected = [
        (10 * two + one) / 11,
        one,
        (10 * two + none) / 11,
        (10 * none + one) / 11,
        (10 * two + one) / 11,
    ]
    found = losses_with(model, data, all_but(model, [[], [0], [2], [0, 1], [3]]))
    assert np.allclose(found, expected, atol=1e-9)
    for importance in (
        gradient_importance(model, data),
        ablation_rises(model, data, reference=None),
    ):
        assert order(importance) == [3, 0, 1, 2]
    for rank in (
        lambda gates: gradient_importance(model, data, gates=gates),
        lambda gates: by_ablation(model, data, gates),
    ):
        assert iterative_order(model, rank) == [3, 0, 2, 1]
    assert iterative_order(model, rank, several=4) == [3, 0, 1, 2]
    with pytest.raises(ValueError, match="at least one head"):
        iterative_order(model, rank, several=0)


def by_ablation(model, data, gates):
    gone = [h for h, gate in enumerate(gates.ravel().tolist()) if not gate]
    sets = [[*gone, h] for h in range(4)]
    return losses_with(model, data, all_but(model, sets)).reshape(1, 4)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_a_cut_model_computes_what_the_gates_compute(causal, bias):
    model, data = drawn(causal, seed=3, bias=bias), batch(0)
    kept = np.array([[0, 2], [1, 3]])
    smaller = prune_heads(model, kept)
    gates = all_but(model, [[1, 3, 4, 6]])
    with torch.no_grad(), gated(model, gates):
        expected = model(data.inputs)
    assert torch.allclose(smaller(data.inputs), expected, atol=1e-12)
    assert smaller.config.n_heads == 2
    assert smaller.config.head_width == model.config.head_width
    fewer = sum(w.numel() for w in smaller.parameters())
    assert fewer < sum(w.numel() for w in model.parameters())
    with pytest.raises(ValueError, match="each of 2 layers"):
        prune_heads(model, kept[:1])
    with pytest.raises(ValueError, match="share keys"):
        prune_heads(drawn(n_kv_heads=2), kept)


def test_kept_heads_are_the_most_important_of_each_layer():
    importance = np.array([[0.1, 0.9, 0.5, 0.7], [4.0, 3.0, 2.0, 1.0]])
    assert keep_by_layer(importance, 2).tolist() == [[1, 3], [0, 1]]
    assert keep_by_layer(importance, 4).tolist() == [[0, 1, 2, 3]] * 2


def test_the_largest_share_counts_what_is_within_the_rise():
    losses = np.array([1.0, 1.02, 1.005, 1.5, 1.4])
    assert largest_share(losses, rise=0.01) == 2 / 4
    assert largest_share(losses, rise=0.001) == 0
    assert largest_share(losses, rise=0.45) == 1
    with pytest.raises(ValueError, match="0 to all heads"):
        largest_share(losses[:1], rise=0.1)


def test_greedy_removal_spares_the_second_twin():
    model, data = twins(vocab=5, length=11, strength=6.0)
    assert greedy_order(model, data) == [3, 0, 2, 1]
    assert greedy_order(model, data) == iterative_order(
        model, lambda gates: by_ablation(model, data, gates)
    )


def test_effects_of_pairs_are_those_of_the_removal_of_both():
    model, data = drawn(), batch(0)
    joint, summed, same = pair_effects(model, data)
    pairs = list(itertools.combinations(range(8), 2))
    assert len(joint) == len(summed) == len(same) == len(pairs) == 28
    sets = [[], [1], [6], [1, 6]]
    losses = losses_with(model, data, all_but(model, sets))
    at = pairs.index((1, 6))
    assert joint[at] == pytest.approx(losses[3] - losses[0])
    assert summed[at] == pytest.approx(losses[1] + losses[2] - 2 * losses[0])
    assert same[at] == 0
    assert same.sum() == 12


def test_gini_is_half_the_mean_difference_over_the_mean():
    values = np.random.default_rng(0).random(20)
    pairs = np.abs(values[:, None] - values).mean()
    assert gini(values) == pytest.approx(pairs / (2 * values.mean()))
    assert gini(np.array([[-1.0, 2.0], [0.0, 0.0]])) == pytest.approx(0.75)
    with pytest.raises(ValueError, match="above 0"):
        gini(np.zeros(3))


def test_spreads_are_over_tasks_and_over_other_trainings():
    rng = np.random.default_rng(0)
    shares = {name: rng.random(5) for name in "abcd"}
    across, within = spread_over_tasks(shares)
    table = np.array(list(shares.values()))
    assert across == pytest.approx([np.std(table[:, seed], ddof=1) for seed in range(5)])
    for start, chosen in ((0, [0, 1, 2, 3]), (4, [4, 0, 1, 2])):
        expected = np.mean([np.std(row[chosen], ddof=1) for row in table])
        assert within[start] == pytest.approx(expected)
    with pytest.raises(ValueError, match="at least 4 trainings"):
        spread_over_tasks({name: values[:3] for name, values in shares.items()})


def test_random_sets_choose_without_repetition():
    sets = random_sets(8, 3, 400, torch.Generator().manual_seed(0))
    assert all(len(set(one)) == 3 for one in sets)
    counts = np.bincount(np.ravel(sets), minlength=8) / 400
    assert np.abs(counts - 3 / 8).max() < 0.08
