"""Sizes of scores against closed forms and draws; a Jacobian against autograd; scales that are learned."""

import math

import pytest
import torch
from measured_book.rooms.scale import measure
from measured_book.rooms.scale.measure import (
    drawn_scores,
    exact_variances,
    first_look,
    fresh,
    jacobian_norm,
    largest_score,
    layer_of,
    moved_by_rounding,
    query_gradient_norm,
    scaled,
    share_beyond,
    weight_moved,
    zeros,
)
from measured_transformer.internals.capture import capture
from measured_transformer.models.config import Config
from measured_transformer.tasks.recall import AssociativeRecall
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training.loop import make_model, predict, train
from measured_transformer.training.seeding import make_generator
from measured_transformer.variants.attention import LearnedScale, RescaledScores, learn_scale
from measured_transformer.variants.weights import Weighed

TASK = Reversal(vocab=6, length=6)
CONFIG = Config(vocab=6, d_model=16, n_layers=2, n_heads=2)


def model(**changes):
    return make_model(CONFIG.replace(**changes), causal=False, seed=3)


def test_drawn_scores_spread_with_the_root_of_the_width():
    for d_head in (4, 64):
        scores = drawn_scores(d_head, 50, rows=400, seed=0)
        assert scores.shape == (400, 50)
        assert scores.dtype == torch.float64
        assert float(scores.std()) == pytest.approx(math.sqrt(d_head), rel=0.05)


def test_the_scale_multiplies_the_same_draws():
    whole = drawn_scores(8, 5, rows=150, seed=1)
    torch.testing.assert_close(drawn_scores(8, 5, rows=150, seed=1, scale=0.25), whole / 4)
    assert not torch.equal(whole, drawn_scores(8, 5, rows=150, seed=2))
    assert not torch.equal(whole[:50], whole[100:])  # no part repeats another


def test_a_query_is_shared_by_its_row_and_by_no_other():
    scores = drawn_scores(2, 2000, rows=300, seed=0)
    lengths = scores.std(dim=1)  # of a row: the length of its query
    assert float(lengths.std()) > 0.3
    assert float(scores.square().mean()) == pytest.approx(2, rel=0.15)


@pytest.mark.parametrize("wrong", [(0, 2, 2), (2, 0, 2), (2, 2, 0)])
def test_sizes_must_be_positive(wrong):
    d_head, n_keys, rows = wrong
    with pytest.raises(ValueError, match="sizes must be positive"):
        drawn_scores(d_head, n_keys, rows=rows, seed=0)
    with pytest.raises(ValueError, match="sizes must be positive"):
        query_gradient_norm(d_head, n_keys, scale=1.0, rows=rows, seed=0)


def test_all_sign_vectors_have_variance_one_and_their_own_score_none():
    for d_head in (1, 2, 5, 8):
        assert exact_variances(d_head) == pytest.approx((1.0, 0.0), abs=1e-12)
    with pytest.raises(ValueError, match="between 1 and 10"):
        exact_variances(11)


@pytest.mark.parametrize(("bound", "d_head"), [(1.0, 1), (5.0, 16), (50.0, 512)])
def test_tails_are_those_of_draws(bound, d_head):
    scores = drawn_scores(d_head, 1, rows=20000, seed=5).squeeze(1)
    drawn = float((scores.abs() > bound).double().mean())
    assert share_beyond(bound, d_head) == pytest.approx(drawn, abs=0.012)


def test_tails_of_one_number_and_of_no_bound():
    assert share_beyond(0.0, 7) == pytest.approx(1)
    with pytest.raises(ValueError, match="bound >= 0"):
        share_beyond(-1.0, 4)
    with pytest.raises(ValueError, match="d_head >= 1"):
        share_beyond(1.0, 0)


def test_the_norm_is_that_of_the_jacobian_that_autograd_finds():
    scores = torch.randn(6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    scores[0] *= 40
    for row in scores:
        jacobian = torch.autograd.functional.jacobian(lambda s: s.softmax(-1), row)
        assert float(jacobian_norm(row.softmax(-1))) == pytest.approx(float(jacobian.norm()))


def test_certain_weights_let_nothing_through():
    assert float(jacobian_norm(torch.tensor([0.0, 1.0, 0.0]))) == 0


def test_the_gradient_at_the_query_is_the_derivative():
    (found,) = query_gradient_norm(3, 4, scale=0.7, rows=1, seed=2)
    generator = make_generator(2, "query-gradients-3-4")
    query = torch.randn(1, 1, 3, generator=generator).double().flatten()
    keys = torch.randn(1, 4, 3, generator=generator).double().squeeze(0)
    arriving = torch.randn(1, 1, 4, generator=generator).double().flatten()
    p = (0.7 * keys @ query).softmax(-1)
    expected = 0.7 * keys.T @ (p.diag() - torch.outer(p, p)) @ arriving
    assert float(found) == pytest.approx(float(expected.norm()))


def test_first_look_at_a_head_that_sees_all_alike():
    fresh = model()
    with torch.no_grad():
        fresh.blocks[0].attention.query.weight.zero_()
        fresh.blocks[0].attention.query.bias.zero_()
    seen = first_look(fresh, TASK, seed=0)
    assert seen == pytest.approx({"spread": 0, "largest": 1 / 6, "entropy": 1}, abs=1e-6)


def test_first_look_at_causal_rows_leaves_out_what_is_hidden():
    task = AssociativeRecall(pairs=2, queries=2, keys=4, values=4)
    fresh = make_model(CONFIG.replace(vocab=8), causal=True, seed=0)
    with torch.no_grad():
        fresh.blocks[0].attention.query.weight.zero_()
        fresh.blocks[0].attention.query.bias.zero_()
    seen = first_look(fresh, task, seed=0)
    assert seen["entropy"] == pytest.approx(1, abs=1e-6)
    expected = sum(1 / n for n in range(2, task.length + 1)) / (task.length - 1)
    assert seen["largest"] == pytest.approx(expected, abs=1e-6)


def test_first_look_follows_the_scale():
    whole, small = (first_look(model(attention_scale=s), TASK, seed=0) for s in (1.0, 0.1))
    assert whole["spread"] == pytest.approx(10 * small["spread"], rel=1e-5)
    assert whole["largest"] > small["largest"]
    assert whole["entropy"] < small["entropy"]


def test_first_look_needs_a_choice():
    with pytest.raises(ValueError, match="single key"):
        first_look(model(), Reversal(vocab=6, length=1), seed=0)


def test_a_learned_scale_starts_as_nothing_and_multiplies_scores():
    plain, learned = model(attention_scale=1.0), model(attention_scale=1.0)
    learn_scale(learned)
    batch = TASK.batch(make_generator(0, "x"), 4)
    torch.testing.assert_close(predict(learned, batch), predict(plain, batch))
    for block in learned.blocks:
        assert isinstance(block.attention.query, LearnedScale)
        with torch.no_grad():
            block.attention.query.log_scale.fill_(math.log(0.25) / 10)
    torch.testing.assert_close(predict(learned, batch), predict(model(attention_scale=0.25), batch))


def test_a_learned_scale_is_trained():
    run = train(CONFIG, TASK, steps=3, learning_rate=0.01, seed=0, prepare=learn_scale)
    factors = [block.attention.query.factor.item() for block in run.model.blocks]
    assert all(abs(math.log(factor)) > 0.02 for factor in factors)


def test_rescaled_scores_start_as_another_scale_would():
    changed = model(attention_scale=1.0)
    RescaledScores(0.25)(changed)
    batch = TASK.batch(make_generator(0, "x"), 4)
    torch.testing.assert_close(predict(changed, batch), predict(model(attention_scale=0.25), batch))
    weights = [m.blocks[1].attention for m in (changed, model(attention_scale=1.0))]
    torch.testing.assert_close(weights[0].key.weight, weights[1].key.weight / 2)
    torch.testing.assert_close(weights[0].value.weight, weights[1].value.weight)
    with pytest.raises(ValueError, match="must be positive"):
        RescaledScores(0.0)


def test_weight_moved_is_what_left_one_key_for_another():
    before = torch.tensor([[0.5, 0.3, 0.2], [1.0, 0.0, 0.0]])
    after = torch.tensor([[0.2, 0.3, 0.5], [0.0, 0.0, 1.0]])
    assert torch.allclose(weight_moved(before, after), torch.tensor([0.3, 1.0]))
    assert weight_moved(before, before).sum() == 0


def test_arms_start_and_scale_as_they_say():
    config = layer_of(16)
    spreads = {
        arm: first_look(fresh(config, arm, 0), measure.LOOKUP, seed=0)["spread"]
        for arm in ("none", "root", "start", "steps")
    }
    assert spreads["none"] == pytest.approx(4 * spreads["root"], rel=1e-4)
    assert spreads["start"] == pytest.approx(spreads["root"], rel=1e-4)
    assert spreads["steps"] == pytest.approx(spreads["none"], rel=1e-4)
    assert scaled(config, "start")[0].attention_scale == 1.0  # long steps
    assert scaled(config, "steps")[0].attention_scale is None


def test_norms_bound_scores_by_the_root_of_the_width():
    config = layer_of(128)
    model = fresh(config, "norm", 0)
    with torch.no_grad():
        model.blocks[0].attention.query.weight.mul_(1000)
    assert 1 < largest_score(model, measure.LOOKUP, seed=0) <= 128**0.5 + 1e-4


def test_the_largest_score_is_one_that_a_query_may_see():
    model = fresh(layer_of(64), "none", 0)
    batch = measure.LOOKUP.batch(make_generator(0, "first-look"), 64)
    names = ("blocks.0.attention.queries", "blocks.0.attention.keys")
    with torch.no_grad(), capture(model, *names) as seen:
        predict(model, batch)
    scores = (seen[names[0]] @ seen[names[1]].mT).tril()
    assert largest_score(model, measure.LOOKUP, seed=0) == pytest.approx(
        float(scores.abs().max()), rel=1e-5
    )


def test_rounding_moves_more_weight_where_scores_are_larger():
    config = layer_of(128)
    small = moved_by_rounding(fresh(config, "root", 0), measure.LOOKUP, seed=0, size=8)
    large = moved_by_rounding(fresh(config, "none", 0), measure.LOOKUP, seed=0, size=8)
    for name in measure.ROUNDED:
        assert 0 < small[name].mean() < large[name].mean() < 0.1
        assert len(small[name]) == 8 * (measure.LOOKUP.length - 1)


def test_rounding_is_that_of_the_model_s_own_scale(monkeypatch):
    model = fresh(layer_of(16).replace(attention_scale=0.037), "root", 0)
    monkeypatch.setattr(torch.Tensor, "bfloat16", lambda x: x)  # nothing is rounded
    moved = moved_by_rounding(model, measure.LOOKUP, seed=0, size=8)
    assert max(float(each.max()) for each in moved.values()) < 1e-6


def test_zeros_are_counted_where_questions_look():
    config = CONFIG.replace(vocab=8, n_heads=1)
    task = AssociativeRecall(pairs=2, queries=2, keys=4, values=4)
    model = make_model(config, causal=True, seed=0)
    assert zeros(model, task, seed=0) == 0
    Weighed("sparsemax")(model)
    with torch.no_grad():
        model.blocks[0].attention.query.weight.mul_(1e4)
    # Each question then looks at a single token of those up to its own, the fifth and the seventh.
    assert zeros(model, task, seed=0) == pytest.approx((4 + 6) / 12)


def test_forms_and_rates_are_those_of_the_claims():
    assert set(measure.LONGER) == set(measure.TASKS)
    for name, task in measure.TASKS.items():
        told = task.length + 1 - 2 * 4
        assert measure.LONGER[name] + 1 - 2 * 4 == 4 * told
