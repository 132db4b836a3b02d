"""A change at some positions, heads and rows leaves everything else as it is."""

import pytest
import torch
from measured_transformer.internals.at import at
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder

TOKENS = torch.tensor([[1, 2, 3, 4, 5], [5, 4, 3, 2, 1]])


def made():
    torch.manual_seed(0)
    return Decoder(Config(vocab=9, d_model=12, n_layers=2, n_heads=3, d_ff=20)).double()


@pytest.mark.parametrize(
    ("where", "index"),
    [
        ({}, ...),
        ({"positions": 2}, (slice(None), slice(None), 2)),
        ({"positions": -1, "heads": 0}, (slice(None), 0, -1)),
        ({"positions": slice(1, None), "rows": [1]}, (1, slice(None), slice(1, None))),
        ({"positions": range(3), "heads": slice(1, 3)}, (slice(None), slice(1, 3), slice(3))),
        ({"rows": 0, "heads": -1, "positions": slice(None, None, 2)}, (0, -1, slice(0, None, 2))),
    ],
)
def test_only_the_chosen_part_changes(where, index):
    value = torch.randn(2, 3, 5, 4)
    before = value.clone()
    expected = value.clone()
    expected[index] = 7.0
    assert torch.equal(at(7, **where)(value), expected)
    assert torch.equal(at(lambda part: torch.full_like(part, 7.0), **where)(value), expected)
    assert torch.equal(at(torch.tensor(7.0), **where)(value), expected)
    assert torch.equal(value, before)


def test_positions_and_heads_form_a_grid():
    value = torch.randn(2, 3, 5, 4)
    part = []
    new = at(lambda x: part.append(x) or 2 * x, heads=[2, 0], positions=[4, 1, 0])(value)
    assert torch.equal(part[0], value[:, [2, 0]][:, :, [4, 1, 0]])
    changed = (new != value).any(-1).any(0)
    expected = torch.zeros(3, 5, dtype=torch.bool)
    expected[[[2], [0]], [4, 1, 0]] = True
    assert torch.equal(changed, expected)


def test_of_a_value_without_heads():
    value = torch.randn(2, 5, 12)
    expected = value.clone()
    expected[1, [0, 3]] = torch.arange(12.0)
    assert torch.equal(at(torch.arange(12.0), positions=[0, 3], rows=1)(value), expected)


@torch.no_grad()
def test_patching_one_head_at_one_position():
    model = made()
    with capture(model, "blocks.0.attention.head_outputs", "blocks.0.attention.out") as clean:
        model(TOKENS)
    source = clean["blocks.0.attention.head_outputs"].flip(0)  # from the other row
    patch = at(source[:, 1:2, 3:4], heads=1, positions=3)
    with (
        intervene(model, {"blocks.0.attention.head_outputs": patch}),
        capture(model, "blocks.0.attention.out", "blocks.1.residual_pre") as patched,
    ):
        model(TOKENS)
    heads = clean["blocks.0.attention.head_outputs"]
    expected = clean["blocks.0.attention.out"].clone()
    expected[:, 3] += source[:, 1, 3] - heads[:, 1, 3]
    torch.testing.assert_close(patched["blocks.0.attention.out"], expected, rtol=0, atol=1e-12)


def test_gradients_flow_through_both_parts():
    value = torch.randn(2, 5, 12, requires_grad=True)
    at(lambda x: 3 * x, positions=1)(value).sum().backward()
    expected = torch.ones(2, 5, 12)
    expected[:, 1] = 3
    assert torch.equal(value.grad, expected)


@pytest.mark.parametrize(
    ("change", "shape", "message"),
    [
        (
            at(0.0, heads=1),
            (2, 5, 12),
            r"\(batch, head, position, \.\.\.\), got shape \(2, 5, 12\)",
        ),
        (at(0.0, positions=5), (2, 5, 12), r"positions must lie in -5\.\.4, got 5"),
        (at(0.0, heads=[0, 3]), (2, 3, 5, 4), r"heads must lie in -3\.\.2, got \[0, 3\]"),
        (at(0.0, rows=-3), (2, 5, 12), r"rows must lie in -2\.\.1, got -3"),
        (at(torch.zeros(7), positions=1), (2, 5, 12), r"chosen part's shape \(2, 1, 12\), got"),
        (
            at(lambda x: x[..., :1], positions=1),
            (2, 5, 12),
            r"shape \(2, 1, 12\), got shape \(2, 1",
        ),
    ],
)
def test_what_does_not_fit_is_refused(change, shape, message):
    with pytest.raises(ValueError, match=message):
        change(torch.zeros(shape))
