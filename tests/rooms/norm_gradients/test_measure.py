"""What the chapter on gradients measures, against what is known by other ways."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import xarray
from measured_book.evidence.results import load_results
from measured_book.rooms.norm_gradients import measure, reading
from measured_book.rooms.norm_gradients.measure import (
    KINDS,
    by_block,
    by_kind,
    first_gradients,
    passage,
    spread,
)
from measured_transformer.analysis.gradients import stream_gradients
from measured_transformer.models.config import Config
from measured_transformer.models.token_positions import find_positions
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training.loop import make_model, train
from measured_transformer.training.losses import cross_entropy
from measured_transformer.training.seeding import make_generator
from measured_transformer.variants.gradients import Watched, gradient_lengths

RESULTS = load_results("norm_gradients")
TASK = Reversal(vocab=5, length=5)
POST = Config(vocab=5, d_model=16, n_layers=3, n_heads=2, activation="relu", placement="post")


def test_no_tuned_learning_rate_stands_at_the_edge_of_its_grid():
    for name, job in measure.remedies_trainings(0).items():
        grid = measure.RATES[measure.REMEDIES[name][0]]
        assert grid[0] < job.settings["learning_rate"] < grid[-1], name


def test_every_run_of_the_remedies_solves_the_task():
    """So that steps can be compared, and no arm is judged by where it was stopped."""
    assert RESULTS["remedies"].solved.all()


@pytest.mark.parametrize("placement", ["pre", "post"])
def test_a_passage_is_what_gradients_taken_by_hand_give(placement):
    config = Config(vocab=5, d_model=16, n_layers=2, n_heads=2, placement=placement)
    model = make_model(config, causal=False, seed=0).double()
    batch = TASK.batch(make_generator(0, "test"), 8)
    found = passage(model, batch)
    x = model.embed(batch.inputs, find_positions(batch.inputs))[0].detach().requires_grad_()
    states = [x]
    for block in model.blocks:
        x = block(x)
        x.retain_grad()
        states.append(x)
    torch.nn.functional.cross_entropy(
        model.unembed(x).flatten(0, 1), batch.targets.flatten(), reduction="sum"
    ).backward()
    gradients = [state.grad for state in states]
    lengths = [math.sqrt(float(g.square().sum()) / (8 * 5)) for g in gradients]
    assert found.gradient == pytest.approx(lengths, rel=1e-6)
    sizes = [math.sqrt(float(s.detach().var(-1, correction=0).mean())) for s in states]
    assert found.size == pytest.approx(sizes, rel=1e-6)
    last = gradients[-1].flatten()
    cosines = [float(torch.cosine_similarity(g.flatten(), last, dim=0)) for g in gradients]
    assert found.cosine == pytest.approx(cosines, abs=1e-6)
    own = [float((g - g.mean(1, keepdim=True)).norm() / g.norm()) for g in gradients]
    assert found.own == pytest.approx(own, rel=1e-6)


def test_a_passage_agrees_with_the_instrument_for_streams():
    """That one averages the lengths over tokens, of the mean loss; this one takes their root mean square."""
    model = measure.fresh(measure.encoder("pre", 3), 5)
    batch = TASK.batch(make_generator(5, "test"), 1)
    shorter = stream_gradients(model, batch)[::2] * batch.scored.sum().item()
    assert (passage(model, batch).gradient >= shorter * (1 - 1e-6)).all()
    assert (passage(model, batch).gradient < 2 * shorter).all()


def test_size_times_gradient_is_one_in_a_tower_of_random_branches():
    """The law by itself: linear branches with orthogonal matrices, far wider than deep, behind norms."""
    generator = torch.Generator().manual_seed(0)
    width, depth = 2048, 6

    def norm(x):
        return x / x.square().mean().sqrt()

    branches = [
        torch.linalg.qr(torch.randn(width, width, generator=generator))[0] for _ in range(depth)
    ]
    x = norm(torch.randn(width, generator=generator)).requires_grad_()
    states = [x]
    for branch in branches:
        x = x + branch @ norm(x)
        x.retain_grad()
        states.append(x)
    (norm(x) @ torch.randn(width, generator=generator)).backward()
    products = [float(s.detach().square().mean().sqrt() * s.grad.norm()) for s in states]
    assert np.array(products) / products[-1] == pytest.approx(np.ones(depth + 1), rel=0.1)
    assert float(states[-1].detach().square().mean().sqrt()) == pytest.approx(
        math.sqrt(1 + depth), rel=0.05
    )


def test_the_first_gradients_are_those_that_a_training_meets():
    options = {"steps": 1, "learning_rate": 1e-3, "batch_size": 16, "seed": 4}
    watched = gradient_lengths(train(POST, TASK, prepare=Watched((0,)), **options).model)
    model = make_model(POST, causal=False, seed=4)
    found = first_gradients(model, TASK.batch(make_generator(4, "training"), 16))
    assert set(found) == set(watched)
    for name in found:
        assert found[name] == pytest.approx(watched[name], rel=1e-4, abs=1e-9), name
    assert all(weight.grad is None for weight in model.parameters())


def test_lengths_are_gathered_by_block_and_kind():
    model = make_model(POST, causal=False, seed=0)
    lengths = {name: np.array([2.0, 1.0]) for name, _ in model.named_parameters()}
    whole = by_block(lengths)
    each = len(list(model.blocks[0].parameters()))
    assert whole.shape == (2, 3)
    assert whole[0] == pytest.approx(2 * math.sqrt(each))
    parts = [by_kind(lengths, kind) for kind in KINDS]
    assert np.sqrt(sum(np.square(part) for part in parts)) == pytest.approx(whole)  # nothing twice
    with pytest.raises(ValueError, match="kind must be"):
        by_kind(lengths, "bias")


def test_the_spread_is_a_ratio_and_wants_gradients():
    assert spread(np.array([[1.0, 4.0], [3.0, 3.0]])) == pytest.approx([4, 1])
    with pytest.raises(ValueError, match="every block"):
        spread(np.array([0.0, 1.0]))


def test_the_last_matrix_is_the_one_that_xiong_et_al_bound():
    config = measure.encoder("post", 2)
    model, batch = measure.fresh(config, 7), measure.held_out(7)
    cross_entropy(model(batch.inputs), batch.targets, batch.scored).backward()
    expected = float(model.blocks[-1].feedforward.down.weight.grad.norm())
    assert measure.last_matrix(config, 7) == pytest.approx(expected, rel=1e-9)


def test_a_slope_is_the_power_of_depth():
    shape = (3, 2, len(measure.DEPTHS), len(measure.AFTER))
    powers = np.array(measure.DEPTHS, float)[:, None] ** -0.5 * np.ones(len(measure.AFTER))
    result = xarray.Dataset(
        {"gradient": (("seed", "placement", "depth", "after"), np.broadcast_to(powers, shape))},
        {"placement": ["pre", "post"], "depth": list(measure.DEPTHS), "after": list(measure.AFTER)},
    )
    found = reading.depth_slope(result, what="gradient", placement="pre", end="last")
    assert found.values == pytest.approx([-0.5] * 3)


def test_the_loss_before_a_step_is_that_of_the_steps_that_were_taken():
    run = train(POST, TASK, steps=12, learning_rate=1e-3, seed=0, batch_size=4)
    assert measure.last_loss(run, 0) == pytest.approx(run.losses[0])
    assert measure.last_loss(run, 5) == pytest.approx(run.losses[:5].mean())
    assert measure.last_loss(run, 12) == pytest.approx(run.losses[2:12].mean())
