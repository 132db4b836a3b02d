"""Intervene replaces what passes, in order, and leaves nothing behind."""

import numpy as np
import pytest
import torch
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.internals.names import taps
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder

CONFIG = Config(vocab=9, d_model=12, n_layers=2, n_heads=3, d_ff=20)
TOKENS = torch.tensor([[1, 2, 3, 4, 5], [8, 0, 8, 0, 1]])


@pytest.fixture
def model():
    torch.manual_seed(0)
    model = Decoder(CONFIG).double()
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    return model


@pytest.mark.parametrize("name", [*taps(Decoder(CONFIG))])
def test_every_tap_can_be_replaced_and_the_replacement_counts(model, name):
    plain = model(TOKENS)
    with capture(model, name) as seen:
        model(TOKENS)
    same = seen[name]
    with intervene(model, {name: same}):
        torch.testing.assert_close(model(TOKENS), plain, rtol=0, atol=1e-11)
    with intervene(model, {name: lambda value: value}):
        torch.testing.assert_close(model(TOKENS), plain, rtol=0, atol=1e-11)
    generator = torch.Generator().manual_seed(1)
    other = 1 + torch.rand(same.shape, generator=generator, dtype=torch.float64)
    with intervene(model, {name: other}):
        assert not torch.allclose(model(TOKENS), plain, atol=1e-4)
    torch.testing.assert_close(model(TOKENS), plain, rtol=0, atol=0)


def test_a_number_a_tensor_and_a_function_say_the_same(model):
    name = "blocks.0.attention.out"
    zeros = torch.zeros(2, 5, 12, dtype=torch.float64)
    outs = []
    for change in (0.0, 0, zeros, zeros[0, 0], torch.tensor(0.0), lambda value: 0 * value):
        with intervene(model, {name: change}):
            outs.append(model(TOKENS))
    for out in outs[1:]:
        assert torch.equal(out, outs[0])
    for block in model.blocks[:1]:
        block.attention.output.weight.data.zero_()
        block.attention.output.bias.data.zero_()
    torch.testing.assert_close(model(TOKENS), outs[0], rtol=0, atol=1e-12)


def test_a_replaced_pattern_is_what_mixes_the_values(model):
    even = torch.full((5, 5), 0.2, dtype=torch.float64)
    with (
        intervene(model, {"blocks.0.attention.pattern": even}),
        capture(model, "blocks.0.attention.values", "blocks.0.attention.mixed") as seen,
    ):
        model(TOKENS)
    mean = seen["blocks.0.attention.values"].mean(2, keepdim=True).expand(2, 3, 5, 4)
    torch.testing.assert_close(seen["blocks.0.attention.mixed"], mean, rtol=0, atol=1e-12)


def test_scores_set_equal_attend_evenly_to_the_past_only(model):
    with intervene(model, {"*.scores": 0.0}), capture(model, "*.pattern") as seen:
        model(TOKENS)
    for pattern in seen.values():
        for i in range(5):
            row = [1 / (i + 1)] * (i + 1) + [0.0] * (4 - i)
            assert pattern[1, 2, i].tolist() == pytest.approx(row, abs=1e-12)


def test_patching_a_whole_state_moves_the_answer_over(model):
    other = TOKENS.flip(0)
    with capture(model, "blocks.1.residual_pre") as seen:
        wanted = model(other)
    with intervene(model, seen):
        torch.testing.assert_close(model(TOKENS), wanted, rtol=0, atol=1e-12)


def test_contexts_apply_in_the_order_of_entering(model):
    name = "blocks.0.residual_mid"
    plain_double = {name: lambda value: 2 * value}
    plus_one = {name: lambda value: value + 1}
    with (
        capture(model, name) as before,
        intervene(model, plain_double),
        capture(model, name) as between,
        intervene(model, plus_one),
        capture(model, name) as after,
    ):
        model(TOKENS)
    assert torch.equal(between[name], 2 * before[name])
    assert torch.equal(after[name], 2 * before[name] + 1)
    with intervene(model, plus_one), intervene(model, plain_double), capture(model, name) as other:
        model(TOKENS)
    assert torch.equal(other[name], 2 * (before[name] + 1))


def test_changes_of_one_mapping_apply_in_its_order(model):
    changes = {"*.residual_mid": lambda v: v + 1, "blocks.0.residual_mid": lambda v: 2 * v}
    with (
        capture(model, "*.residual_mid") as before,
        intervene(model, changes),
        capture(model, "*.residual_mid") as after,
    ):
        model(TOKENS)
    first, second = "blocks.0.residual_mid", "blocks.1.residual_mid"
    assert torch.equal(after[first], 2 * (before[first] + 1))
    assert torch.equal(after[second], before[second] + 1)


def test_a_glob_changes_every_block(model):
    with intervene(model, {"blocks.*.out": 0.0}), capture(model, "embedding") as seen:
        out = model(TOKENS)
    torch.testing.assert_close(out, model.unembed(seen["embedding"]), rtol=0, atol=1e-12)


def test_gradients_flow_through_a_replacement_and_into_it(model):
    name = "blocks.1.feedforward.neurons"
    new = torch.ones(20, dtype=torch.float64, requires_grad=True)
    with intervene(model, {name: new}):
        model(TOKENS).sum().backward()
    assert new.grad.abs().max() > 0
    assert model.blocks[1].feedforward.up.weight.grad is None
    model.zero_grad()
    with intervene(model, {name: lambda value: 2 * value}):
        model(TOKENS).sum().backward()
    assert model.blocks[1].feedforward.up.weight.grad.abs().max() > 0


def test_the_dtype_of_a_replacement_follows_the_value(model):
    with intervene(model, {"blocks.0.attention.out": torch.ones(12)}):
        assert model(TOKENS).dtype == torch.float64


@torch.no_grad()
def test_a_change_made_in_place_reaches_only_what_follows(model):
    def erase(value):
        value[:, 1] = 0.0
        return value

    with capture(model, "blocks.*.residual_*") as plain:
        model(TOKENS)
    with (
        capture(model, "blocks.*.residual_*") as before,
        intervene(model, {"blocks.1.residual_pre": erase}),
        capture(model, "blocks.*.residual_*") as after,
    ):
        model(TOKENS)
    assert torch.equal(before["blocks.0.residual_post"], plain["blocks.0.residual_post"])
    assert torch.equal(before["blocks.1.residual_pre"], plain["blocks.1.residual_pre"])
    assert torch.equal(after["blocks.1.residual_pre"][:, 1], torch.zeros(2, 12).double())
    assert not torch.equal(after["blocks.1.residual_post"], plain["blocks.1.residual_post"])


def test_gradients_pass_a_change_made_in_place(model):
    def erase(pattern):
        pattern[:, 0] = 0.0
        return pattern

    with intervene(model, {"blocks.0.attention.pattern": erase}):
        model(TOKENS).sum().backward()
    grad = model.blocks[0].attention.query.weight.grad
    assert torch.equal(grad[:4], torch.zeros(4, 12).double())
    assert grad[4:].abs().max() > 0


@torch.no_grad()
def test_numbers_of_numpy_are_numbers(unhooked, model):
    with intervene(model, {"logits": np.float32(0.5)}):
        assert (model(TOKENS) == 0.5).all()


@pytest.mark.parametrize("change", [None, "zero", [0.0]])
def test_what_is_no_change_is_refused_at_once(unhooked, model, change):
    with (
        pytest.raises(ValueError, match="the change of logits must be a function, a tensor or a"),
        intervene(model, {"*.pattern": 0.0, "logits": change}),
    ):
        pass
    assert not any(tap.watched for tap in taps(model).values())


def test_nothing_writes_into_a_replacement(model):
    new = torch.randn(2, 5, 12, dtype=torch.float64)
    kept = new.clone()
    with intervene(model, {"*.residual_*": new}):
        model(TOKENS).sum().backward()
    assert torch.equal(new, kept)


@pytest.mark.parametrize(
    ("change", "came"),
    [
        (torch.zeros(2, 5, 13), r"shape \(2, 5, 13\)"),
        (torch.zeros(3, 5, 12), r"shape \(3, 5, 12\)"),
        (torch.zeros(1, 2, 5, 12), r"shape \(1, 2, 5, 12\)"),
        (lambda value: value[:, :1], r"shape \(2, 1, 12\)"),
        (lambda value: None, "NoneType"),
        (lambda value: 0.0, "float"),
    ],
)
def test_a_replacement_of_another_shape_is_refused(model, change, came):
    name = r"blocks.0.residual_mid must be a tensor of shape \(2, 5, 12\), got "
    with (
        pytest.raises(ValueError, match=name + came),
        intervene(model, {"blocks.0.residual_mid": change}),
    ):
        model(TOKENS)
    assert not any(tap.watched for tap in taps(model).values())


@pytest.mark.parametrize("changes", [["logits"], "logits", [("logits", 0.0)], {"logits"}])
def test_changes_that_are_no_dictionary_are_refused_with_an_example(unhooked, model, changes):
    wanted = (
        rf"dictionary .* such as \{{'blocks.0.attention.out': 0.0\}}, got {type(changes).__name__}"
    )
    with pytest.raises(ValueError, match=wanted), intervene(model, changes):
        pass


def test_several_names_in_one_key_are_refused(unhooked, model):
    with (
        pytest.raises(
            ValueError, match="each name or glob of a tap is a text of its own, got a tuple"
        ),
        intervene(model, {("logits", "embedding"): 0.0}),
    ):
        pass
