"""The checks of the chapter on attention, against hand-made cases that they must pass or turn down."""

import math

import numpy as np
import pytest
import torch
from measured_transformer.analysis.drawn_cases import drawn_case
from measured_transformer.chapters.attention.measure import (
    in_hull,
    in_three_lines,
    looks_ahead,
    masked_too_late,
    one_head,
    reach,
    sigmoid_pattern,
    weight_derivatives,
)
from measured_transformer.models.config import Config
from measured_transformer.parts.attention import MultiHeadAttention, causal_mask
from measured_transformer.training.loop import make_model
from torch.nn import functional as F

SMALL = Config(vocab=10, d_model=8, n_layers=2, n_heads=2)


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


def test_reach_has_the_shape_of_the_masks():
    tokens, source = torch.arange(4), torch.arange(6)
    encoder = make_model(SMALL, causal=False, seed=0)
    decoder = make_model(SMALL, causal=True, seed=0)
    both = make_model(SMALL, causal=True, source=True, seed=0)
    assert (reach(encoder, tokens) > 0).all()
    np.testing.assert_array_equal(reach(decoder, tokens) > 0, np.tri(4, dtype=bool))
    np.testing.assert_array_equal(reach(both, tokens, source) > 0, np.tri(4, dtype=bool))
    across = reach(both, tokens, source, of="source")
    assert across.shape == (4, 6)
    assert (across > 0).all()


def test_without_attention_every_position_knows_itself_alone():
    model = make_model(SMALL, causal=False, seed=0)
    with torch.no_grad():
        for block in model.blocks:
            block.attention.output.weight.zero_()
    np.testing.assert_array_equal(reach(model, torch.arange(4)) > 0, np.eye(4, dtype=bool))


def test_reach_needs_a_source_exactly_where_there_is_one():
    decoder = make_model(SMALL, causal=True, seed=0)
    both = make_model(SMALL, causal=True, source=True, seed=0)
    for model, source, of in (
        (decoder, torch.arange(3), "tokens"),
        (both, None, "tokens"),
        (decoder, None, "source"),
    ):
        with pytest.raises(ValueError, match="an EncoderDecoder needs a source"):
            reach(model, torch.arange(4), source, of=of)
