"""The checks of the chapter on attention, against hand-made cases that they must pass or turn down."""

import math

import numpy as np
import pytest
import torch
from measured_book.evidence.results import load_results
from measured_book.measuring.measurement import measurements_of
from measured_book.measuring.state import HOLDS, standing
from measured_book.rooms.attention import measure
from measured_book.rooms.attention.measure import (
    in_hull,
    in_three_lines,
    looks_ahead,
    masked_too_late,
    one_head,
    sigmoid_pattern,
    weight_derivatives,
)
from measured_transformer.analysis.drawn_cases import drawn_case
from measured_transformer.models.config import Config
from measured_transformer.parts.attention import MultiHeadAttention, causal_mask
from measured_transformer.training.loop import make_model
from torch.nn import functional as F

RESULTS = load_results("attention")
ONE_BLOCK = Config(vocab=6, d_model=8, n_layers=1, n_heads=2)


def test_drawn_cases_are_what_was_asked_for():
    cases = [drawn_case(seed) for seed in range(60)]
    assert len({case.scores().shape for case in cases}) > 40
    assert all(torch.equal(a.keys, drawn_case(s).keys) for s, a in enumerate(cases[:5]))
    for seed, case in enumerate(cases):
        assert case.queries.dtype == torch.float64
        assert case.to(torch.float32).output().dtype == torch.float32
        if seed % 3 == 0:
            assert case.mask is None
        elif seed % 3 == 1:
            assert torch.equal(case.mask, causal_mask(case.keys.shape[-2]))
        else:
            open_keys = case.mask.sum(-1)
            assert (open_keys >= 2).all()
            assert (open_keys < case.keys.shape[-2]).all()
    assert drawn_case(4, d_value=3).values.shape[-1] == 3
    square = drawn_case(3, square=True)
    assert square.queries.shape[-2] == square.keys.shape[-2]


def test_a_mask_that_does_not_exist(unhooked):
    with pytest.raises(ValueError, match="mask must be one of none, causal, keys, got 'both'"):
        drawn_case(0, mask="both")


def test_a_case_goes_by_the_scale_and_the_mask():
    case = drawn_case(1, mask="causal")
    theirs = F.scaled_dot_product_attention(
        case.queries, case.keys, case.values, is_causal=True, scale=0.3
    )
    torch.testing.assert_close(case.output(scale=0.3), theirs)


def test_one_head_by_hand():
    x, eye = torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.eye(2)
    e = math.exp(4 / math.sqrt(2))
    expected = torch.tensor([[0.0, 0.0], [1 / (1 + e), 2 * e / (1 + e)]])
    torch.testing.assert_close(one_head(x, eye, eye, eye)[1], expected[1])


@pytest.mark.parametrize(
    ("point", "inside"),
    [((0.2, 0.2), True), ((0.0, 1.0), True), ((0.51, 0.51), False), ((-0.01, 0.2), False)],
)
def test_the_hull_of_a_triangle(point, inside):
    corners = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    assert in_hull(torch.tensor(point), corners) is inside


def test_the_hull_needs_points_of_its_width(unhooked):
    with pytest.raises(ValueError, match=r"got shapes \(3,\) and \(4, 2\)"):
        in_hull(torch.zeros(3), torch.zeros(4, 2))


def test_derivatives_of_weights():
    a = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    expected = torch.diag(a) - torch.outer(a, a)
    torch.testing.assert_close(weight_derivatives(a.log()), expected)
    alone = weight_derivatives(torch.zeros(3, dtype=torch.float64), sigmoid_pattern)
    torch.testing.assert_close(alone, 0.25 * torch.eye(3, dtype=torch.float64))


def test_the_recipe_hides_the_future_and_touches_nothing():
    case = drawn_case(7, mask="causal")
    before = case.keys.clone()
    torch.testing.assert_close(in_three_lines(case.queries, case.keys, case.values), case.output())
    assert torch.equal(before, case.keys)
    unhidden = in_three_lines(case.queries, case.keys, case.values, hide=False)
    assert (unhidden - case.output()).abs().max() > 1e-3


def test_masking_too_late_leaves_less_than_the_budget():
    late = masked_too_late(torch.zeros(3, 3), causal_mask(3))
    torch.testing.assert_close(late, torch.ones(3, 3).tril() / 3)


def test_layers_that_look_ahead_are_found(monkeypatch):
    assert looks_ahead(3, causal=True) == (0.0, 0.0)
    assert min(looks_ahead(3, causal=False)) > 1e-3
    forward = MultiHeadAttention.forward

    def forgets_when_fused(self, x, *, causal=False):
        return forward(self, x, causal=causal and self.pattern.watched)

    monkeypatch.setattr(MultiHeadAttention, "forward", forgets_when_fused)
    assert looks_ahead(3, causal=True)[1] > 1e-3


def test_every_result_is_of_this_code():
    for one in measurements_of("attention").values():
        assert standing(one).state in HOLDS, standing(one).why


@pytest.mark.parametrize("how", ["too late", "no mask"])
def test_no_tuned_learning_rate_of_a_model_that_learns_stands_at_the_edge_of_its_grid(how):
    rate = measure.dice_trainings(0)[how].settings["learning_rate"]
    assert measure.RATES[0] < rate < measure.RATES[-1]


def test_errors_are_rounding_and_controls_are_not():
    drawn = RESULTS["drawn"]
    for name in (*measure.ROUNDING, "recipe_moved"):
        assert float(drawn[name].max()) < 1e-9, name
        assert float(drawn[f"{name}_control"].min()) > 1e-3, name
    assert bool(drawn.inside.all())
    assert not bool(drawn.inside_control.any())


def test_stated_numbers_are_those_of_the_sources():
    stated = RESULTS["stated"].isel(seed=0)
    assert stated.open.values.tolist() == [1, 2, 3, 4, 5, 6]
    assert (float(stated.width), float(stated.head_width)) == (768, 64)


def test_kernel_scores_are_those_of_nadaraya_and_watson():
    x, centres = torch.rand(5, 1, dtype=torch.float64), torch.rand(7, 1, dtype=torch.float64)
    bells = torch.exp(-((x - centres.T) ** 2) / (2 * 0.3**2))
    matrix = torch.eye(1, dtype=torch.float64) / 0.3
    found = measure.kernel_scores(x, centres, matrix).softmax(-1)
    torch.testing.assert_close(found, bells / bells.sum(1, keepdim=True))


def test_a_kernel_by_distance_in_many_coordinates():
    torch.manual_seed(0)
    x, centres, matrix = (torch.rand(n, 4, dtype=torch.float64) for n in (5, 7, 4))
    distance = torch.cdist(x @ matrix, centres @ matrix).square()
    found = measure.kernel_scores(x, centres, matrix).softmax(-1)
    torch.testing.assert_close(found, (-distance / 2).softmax(-1))


def test_look_ups_are_scored_against_the_wave_without_noise():
    given = measure.lookups(torch.Generator().manual_seed(0), 400, 3)
    noise = given.values[..., 0] - torch.sin(2 * math.pi * given.keys[..., 0])
    assert float(noise.std()) == pytest.approx(measure.NOISE, rel=0.02)
    assert float(given.off(torch.sin(2 * math.pi * given.queries[..., :1]))) < 1e-12
    assert float(given.off(torch.zeros_like(given.values))) == pytest.approx(0.5**0.5, rel=0.02)


def test_a_fixed_kernel_is_the_best_of_its_grid():
    given = measure.lookups(torch.Generator().manual_seed(0), 16, 2)
    errors = [float(given.error(torch.eye(2).double() / width)) for width in measure.WIDTHS]
    assert float(given.error(measure.fixed_kernel(given))) == min(errors)
    assert 0 < int(np.argmin(errors)) < len(errors) - 1


def test_only_the_learned_kernel_stays_as_good_with_more_coordinates():
    error = RESULTS["smoothing"].error.mean("seed")
    one, eight = (error.sel(coordinates=count) for count in (1, 8))
    assert float(eight.sel(smoother="learned kernel") / one.sel(smoother="learned kernel")) < 1.1
    for name in ("fixed kernel", "nearest"):
        assert float(eight.sel(smoother=name) / one.sel(smoother=name)) > 2


def test_dice_are_fair_and_the_last_roll_is_not_asked_for():
    task = measure.Dice(vocab=6, length=5)
    batch = task.batch(torch.Generator().manual_seed(0), 6000)
    assert torch.equal(batch.targets[:, :-1], batch.inputs[:, 1:])
    assert batch.scored.sum(0).tolist() == [6000] * 4 + [0]
    shares = torch.bincount(batch.inputs.flatten()) / batch.inputs.numel()
    assert float((shares - 1 / 6).abs().max()) < 0.01
    assert task.best_loss() == pytest.approx(1.791759)
    with pytest.raises(ValueError, match="length must be a positive whole number"):
        measure.Dice(length=0)


def test_masks_are_set_when_they_are_said_to_be():
    rolls = torch.randint(6, (3, 7))
    other = torch.cat([rolls[:, :5], 5 - rolls[:, 5:]], dim=1)
    moved = {}
    for how in measure.MASKINGS:
        model = make_model(ONE_BLOCK, causal=True, seed=0).eval()
        measure.Masking(how)(model)
        with torch.no_grad():
            moved[how] = float((model(rolls) - model(other))[:, :5].abs().max())
    assert moved["in time"] == 0
    assert min(moved["too late"], moved["no mask"]) > 1e-3


def test_a_late_mask_gives_no_weight_to_the_future_all_the_same():
    layer = MultiHeadAttention(8, 2, bias=False)
    layer.__class__ = measure._MaskedTooLate
    x = torch.randn(1, 5, 8)
    q, k, v = (
        part(x).view(1, 5, 2, 4).transpose(1, 2) for part in (layer.query, layer.key, layer.value)
    )
    weights = (q @ k.transpose(-2, -1) / 2).softmax(-1).tril()
    expected = layer.output((weights @ v).transpose(1, 2).flatten(2))
    torch.testing.assert_close(layer(x, causal=True), expected)


def test_there_are_three_ways_to_mask(unhooked):
    with pytest.raises(ValueError, match="how must be one of in time, too late, no mask"):
        measure.Masking("sometimes")


def test_what_is_not_there_is_not_seen():
    model = make_model(ONE_BLOCK, causal=True, seed=1).eval()
    rolls = torch.randint(6, (16, 6))
    given, alone = (measure.loss_of_next(model, rolls, known=known) for known in (True, False))
    torch.testing.assert_close(given, alone)
    measure.Masking("no mask")(model)
    given, alone = (measure.loss_of_next(model, rolls, known=known) for known in (True, False))
    assert float((given - alone)[:-1].abs().min()) > 1e-5
    logits = model(rolls).detach()
    loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), rolls[:, 1:].flatten())
    assert float(given.mean()) == pytest.approx(float(loss), rel=1e-5)


def test_nobody_foresees_dice_whose_mask_comes_in_time():
    losses = RESULTS["dice"]
    floor = measure.DICE.best_loss()
    for name in ("whole", "alone"):
        honest = losses[name].sel(masking="in time")
        assert float(abs(honest - floor).max()) < 0.02
    assert float(losses.whole.sel(masking=["too late", "no mask"]).max()) < 0.5 * floor
    assert float(losses.alone.sel(masking=["too late", "no mask"]).min()) > 2 * floor
