"""Turns of writes, a first step and the search from the top, against what is known beforehand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from measured_transformer.analysis.residual import ledger
from measured_transformer.analysis.states import turns
from measured_transformer.chapters.small_steps.measure import (
    Descent,
    block_turn_limit,
    first_step_shift,
    from_the_top,
    logit_change,
    rates_within,
    write_turns,
)
from measured_transformer.internals.capture import capture
from measured_transformer.models.config import Config
from measured_transformer.models.encoder import Encoder
from measured_transformer.models.encoder_decoder import EncoderDecoder
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training.loop import Run, make_model, train
from measured_transformer.training.schedules import Constant
from measured_transformer.training.seeding import make_generator
from measured_transformer.training.tuning import Arm
from measured_transformer.variants.initialisation import BranchFactor
from measured_transformer.variants.norms import zero_branches

TASK = Reversal(vocab=2, length=3)
CONFIG = Config(vocab=2, d_model=16, n_layers=2, n_heads=2, activation="relu")


def fresh(seed=0, **changes):
    return make_model(CONFIG.replace(**changes), causal=False, seed=seed).eval()


@pytest.mark.parametrize("factor", [0.1, 0.0, 3.0])
@pytest.mark.parametrize("changes", [{}, {"placement": "post"}, {"norm": "none"}])
def test_the_first_branch_writes_so_many_times_as_much(factor, changes):
    tokens = TASK.batch(make_generator(0, "evaluation"), 4).inputs
    whole, scaled = fresh(**changes), fresh(**changes)
    with torch.no_grad():  # biases begin at zero, and must be multiplied all the same
        for model in (whole, scaled):
            for block in model.blocks:
                block.attention.output.bias.fill_(0.3)
    BranchFactor(factor)(scaled)
    first, other = ledger(whole, tokens).writes[0], ledger(scaled, tokens).writes[0]
    torch.testing.assert_close(other, factor * first)


def test_every_branch_is_multiplied_and_nothing_else():
    model, whole = fresh(), fresh()
    BranchFactor(0.5)(model)
    x = torch.randn(2, 3, 16)
    for one, other in zip(model.blocks, whole.blocks, strict=True):
        for part in ("attention", "feedforward"):
            torch.testing.assert_close(getattr(one, part)(x), 0.5 * getattr(other, part)(x))
    pairs = zip(model.named_parameters(), whole.parameters(), strict=True)
    changed = {name for (name, a), b in pairs if not torch.equal(a, b)}
    ends = ("attention.output.weight", "feedforward.down.weight")
    assert changed == {f"blocks.{i}.{end}" for i in range(2) for end in ends}


def test_a_factor_of_one_changes_nothing_and_of_zero_is_the_known_preparation():
    for factor, known in ((1.0, None), (0.0, zero_branches)):
        model, other = fresh(), fresh()
        BranchFactor(factor)(model)
        if known is not None:
            known(other)
        pairs = zip(model.parameters(), other.parameters(), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("factor", [-1.0, math.nan, math.inf])
def test_a_factor_that_is_none_is_refused(factor):
    with pytest.raises(ValueError, match="factor must be"):
        BranchFactor(factor)


def test_an_encoder_decoder_is_refused():
    with pytest.raises(ValueError, match="Encoder or a Decoder"):
        BranchFactor(0.5)(EncoderDecoder(CONFIG))


@pytest.mark.parametrize("length", [0.1, 1.0, 7.0])
def test_turns_are_those_of_vectors_at_right_angles(length):
    writes = 6
    vectors = torch.diag(torch.tensor([1.0] + [length] * writes, dtype=torch.float64))
    states = vectors.cumsum(0).view(writes + 1, 1, 1, -1)
    assert write_turns(length, writes) == pytest.approx(turns(states))


def test_long_writes_come_to_the_limit_and_short_ones_do_not():
    limit = block_turn_limit(40)
    assert write_turns(1e4, 40) == pytest.approx(limit, abs=0.01)
    assert limit[16] == pytest.approx(math.degrees(math.atan(1 / 4)))
    assert write_turns(0.1, 40)[-1] < limit[-1] < limit[0]


@pytest.mark.parametrize("bad", [(-0.1, 3), (1.0, 0)])
def test_writes_that_make_no_sense_are_refused(bad):
    with pytest.raises(ValueError, match="at least"):
        write_turns(*bad)
    with pytest.raises(ValueError, match="at least one block"):
        block_turn_limit(0)


def test_a_change_of_the_logits_is_taken_around_their_mean():
    before, after = fresh(head_bias=True), fresh(head_bias=True)
    with torch.no_grad():
        after.unembedding.bias += 5.0  # the same for all answers
    assert logit_change(before, after, TASK, seed=1) == pytest.approx(0, abs=1e-5)
    with torch.no_grad():
        after.unembedding.bias[0] += 4.0  # 2 and -2 around the mean
    assert logit_change(before, after, TASK, seed=1) == pytest.approx(2, rel=1e-5)


@pytest.mark.parametrize("optimiser", ["AdamW", "SGD"])
def test_a_first_step_is_a_step_written_out(optimiser):
    prepare, rate = BranchFactor(0.3), 0.01
    model, before = fresh(seed=3), fresh(seed=3)
    prepare(model)
    prepare(before)
    batch = TASK.batch(make_generator(3, "training"), 32)
    loss = torch.nn.functional.cross_entropy(model(batch.inputs).transpose(1, 2), batch.targets)
    loss.backward()
    with torch.no_grad():
        for weight in model.parameters():
            gradient = weight.grad
            step = gradient if optimiser == "SGD" else gradient / (gradient.abs() + 1e-8)
            weight.sub_(rate * step)
    found = first_step_shift(
        CONFIG, TASK, 3, learning_rate=rate, optimiser=optimiser, prepare=prepare
    )
    assert found == pytest.approx(logit_change(before, model, TASK, seed=3), rel=1e-3)
    assert found > 0.01


def test_a_small_rate_moves_a_model_in_proportion():
    small, double = (
        first_step_shift(CONFIG, TASK, 0, learning_rate=rate, optimiser="SGD")
        for rate in (1e-4, 2e-4)
    )
    assert double == pytest.approx(2 * small, rel=0.02)


def run(seed, depth, ends_at):
    """A run whose loss falls below the level at once, or never."""
    losses = np.full(20, 0.0 if ends_at else 1.0)
    model, none = Encoder(CONFIG.replace(n_layers=depth)), np.zeros(0)
    return Run(model, losses, seed, False, losses, losses, none.astype(int), none, none)


def test_the_largest_depth_is_found_for_each_seed():
    tried = {
        8: {0: run(0, 8, True), 10: run(10, 8, False), 20: run(20, 8, False)},
        4: {10: run(10, 4, True), 20: run(20, 4, False)},
        2: {20: run(20, 2, False)},
    }
    found = Descent((0, 10, 20), tried)
    assert found.largest.tolist() == [8.0, 4.0, 1.0]
    assert found.at(4).observed.tolist() == [True, False]
    with pytest.raises(ValueError, match="depth that was tried"):
        found.at(6)


def test_only_seeds_that_fail_go_down_and_only_as_far_as_they_must(monkeypatch):
    works = {(4, 0), (2, 10)}
    trained, asked = [], []

    def fake(config, task, seed, *, steps, look_every, learning_rate, **options):
        trained.append((config.n_layers, seed, learning_rate, options))
        return run(seed, config.n_layers, (config.n_layers, seed) in works)

    monkeypatch.setattr(
        "measured_transformer.chapters.small_steps.measure.train_until_solved", fake
    )
    arms = {
        depth: Arm(CONFIG.replace(n_layers=depth), {"batch_size": depth}) for depth in (1, 2, 4)
    }
    found = from_the_top(
        arms, TASK, [0, 10], rate=lambda d: asked.append(d) or d / 100, steps=30, clip=2.0
    )
    assert asked == [4, 2]
    assert [each[:3] for each in trained] == [(4, 0, 0.04), (4, 10, 0.04), (2, 10, 0.02)]
    assert trained[-1][3] == {"clip": 2.0, "batch_size": 2}
    assert found.largest.tolist() == [4.0, 2.0]


def test_a_real_search_gives_the_beginning_of_whole_runs():
    options = {"batch_size": 8, "schedule": Constant(warmup=5)}
    arms = {2: Arm(CONFIG, {"prepare": BranchFactor(0.5)})}
    found = from_the_top(arms, TASK, [3], rate=lambda _: 1e-2, steps=25, **options)
    whole = train(
        CONFIG, TASK, steps=25, seed=3, learning_rate=1e-2, prepare=BranchFactor(0.5), **options
    )
    losses = found.runs[2][3].losses
    assert np.array_equal(losses, whole.losses[: len(losses)])


def test_searches_that_make_no_sense_are_refused():
    given = {"rate": lambda _: 1e-3, "steps": 20}
    with pytest.raises(ValueError, match="at least one depth"):
        from_the_top({}, TASK, [0], **given)
    with pytest.raises(ValueError, match="as deep as they are named"):
        from_the_top({3: Arm(CONFIG)}, TASK, [0], **given)


def test_rates_count_when_every_seed_got_there():
    losses = {0.1: [0.01, 0.02], 0.2: [0.01, 0.06], 0.3: [math.inf, 0.0], 0.4: [0.05, 0.05]}
    assert rates_within(losses, 0.05) == 2


def test_a_scaled_model_is_seen_by_a_capture_as_one_with_smaller_writes():
    tokens = TASK.batch(make_generator(0, "evaluation"), 4).inputs
    model = fresh(n_layers=6)
    BranchFactor(0.01)(model)
    with torch.no_grad(), capture(model, "blocks.*.residual_post") as seen:
        model(tokens)
    states = torch.stack(list(seen.values()))
    assert turns(states).max() < 2
