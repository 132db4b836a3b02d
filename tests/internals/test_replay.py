"""Watchers hold through recomputation, shared modules and threads, or refuse."""

import copy
import threading

import pytest
import torch
from measured_transformer.internals.at import at
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.internals.names import taps
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.variants.checkpointing import Checkpointed

CONFIG = Config(vocab=20, d_model=16, n_layers=3, n_heads=2, dropout=0.2)
TOKENS = torch.randint(20, (3, 7), generator=torch.Generator().manual_seed(0))


def pair(kind=Decoder, every=1):
    torch.manual_seed(0)
    model = kind(CONFIG).double().train()
    other = copy.deepcopy(model)
    Checkpointed(every)(other)
    return model, other


def ran(model, backward):
    torch.manual_seed(1)
    loss = model(TOKENS).square().mean()
    if backward:
        loss.backward()
    return loss


def grads(model):
    return [parameter.grad for parameter in model.parameters()]


CHANGES = {
    "function": lambda v: 3 * v,
    "in place": lambda v: v.mul_(2),
    "number": 0.0,
    "tensor": torch.tensor(0.5).double(),
    "part": at(lambda v: v - v.mean(), positions=[0, -1]),
    "noise": lambda v: v + torch.randn_like(v),
    "graph": lambda v: v * v.tanh(),
}
PLACES = [
    "blocks.0.attention.out",
    "blocks.1.residual_pre",
    "blocks.2.feedforward.neurons",
    "*.mixed",
]


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("tap", PLACES)
@pytest.mark.parametrize("name", CHANGES)
def test_gradients_are_those_of_the_changed_run(name, tap, inside):
    """Inside the block of the intervention or after it, with blocks that are computed again or not."""
    for every in (1, 2):
        found = []
        for model in pair(every=every):
            with intervene(model, {tap: CHANGES[name]}):
                loss = ran(model, inside)
            if not inside:
                loss.backward()
            found.append(grads(model))
        for a, b in zip(*found, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_an_intervention_that_comes_later_does_not_reach_an_earlier_pass():
    model, checkpointed = pair()
    ran(model, True)
    loss = ran(checkpointed, False)
    with intervene(checkpointed, {"blocks.0.attention.out": 0.0}), capture(checkpointed) as seen:
        loss.backward()
    assert not seen
    for a, b in zip(grads(model), grads(checkpointed), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("inside", [True, False])
def test_nothing_is_captured_twice(inside):
    calls = {}
    for name, model in zip(("plain", "checkpointed"), pair(), strict=True):
        calls[name] = []
        with capture(
            model, "*.out", transform=lambda v, name=name: calls[name].append(v.sum())
        ) as seen:
            loss = ran(model, inside)
        if not inside:
            loss.backward()
        assert len(calls[name]) == len(seen) == 6
    assert calls["plain"] == calls["checkpointed"]


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("kind", [Decoder, Encoder])
def test_gradients_of_captured_values(kind, frozen):
    found = []
    for model in pair(kind):
        model.requires_grad_(not frozen)
        with capture(model, "*.pattern", "*.residual_post", gradients=True) as seen:
            loss = ran(model, False)
        loss.backward()
        found.append({name: value.grad for name, value in seen.items()})
    for name, grad in found[0].items():
        torch.testing.assert_close(grad, found[1][name], rtol=1e-12, atol=1e-12)
        assert grad.abs().max() > 0


def test_a_change_that_does_not_do_the_same_again_is_refused():
    _, model = pair()
    factors = iter((2.0, 5.0, 7.0))
    with intervene(model, {"blocks.1.attention.out": lambda v: next(factors) * v}):
        loss = ran(model, False)
    with pytest.raises(RuntimeError, match="something else when its block was computed again"):
        loss.backward()


def test_nothing_is_left_behind_after_a_failure():
    _, model = pair()

    def broken(value):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"), intervene(model, {"*.mixed": broken}):
        ran(model, False)
    assert not any(tap.watched for tap in taps(model).values())


# Shared modules -----------------------------------------------------------------------------------


@pytest.mark.parametrize("part", ["block", "attention", "norm"])
def test_a_module_at_several_places_is_refused_by_name(part):
    model = Decoder(CONFIG).eval()
    if part == "block":
        model.blocks[1] = model.blocks[0]
    elif part == "attention":
        model.blocks[1].attention = model.blocks[0].attention
    else:
        model.blocks[1].attention_norm = model.blocks[0].attention_norm
    inside = {
        "block": "residual_post",
        "attention": "attention.out",
        "norm": "attention_norm.scale",
    }
    name = inside[part]
    for call in (
        lambda: capture(model, f"blocks.0.{name}"),
        lambda: intervene(model, {f"blocks.0.{name}": 0.0}),
        lambda: capture(model),
    ):
        with (
            pytest.raises(ValueError, match=r"blocks\.0\..* and blocks\.1\..* are one module"),
            call(),
        ):
            pass
    with capture(model, "logits", "blocks.2.residual_post") as seen:  # these stand at one place
        model(TOKENS)
    assert len(seen) == 2
    model.blocks[1] = copy.deepcopy(model.blocks[1])
    model.blocks[0] = copy.deepcopy(model.blocks[0])
    with capture(model) as seen:
        model(TOKENS)
    assert set(seen) == set(taps(model))


# Threads ------------------------------------------------------------------------------------------


def test_each_thread_sees_and_changes_its_own_calls():
    model = Decoder(CONFIG.replace(dropout=0.0)).double().eval()
    names = list(taps(model))
    inputs = torch.randint(20, (4, 2, 6), generator=torch.Generator().manual_seed(3))

    def alone(number):
        change = {"blocks.0.attention.out": float(number)} if number else {}
        with torch.no_grad(), intervene(model, change), capture(model) as seen:
            model(inputs[number])
        return dict(seen)

    wanted = [alone(number) for number in range(4)]
    found, gate = [[] for _ in range(4)], threading.Barrier(4)

    def work(number):
        gate.wait()
        for _ in range(15):
            found[number].append(alone(number))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(4):
        assert len(found[number]) == 15
        for seen in found[number]:
            assert list(seen) == names or set(seen) == set(names)
            for name, value in wanted[number].items():
                torch.testing.assert_close(seen[name], value, rtol=1e-10, atol=1e-10)
    assert not any(tap.watched for tap in taps(model).values())


def test_a_plain_call_of_another_thread_is_neither_seen_nor_changed():
    model = Decoder(CONFIG.replace(dropout=0.0)).double().eval()
    with torch.no_grad():
        plain, results = model(TOKENS), []
        with intervene(model, {"logits": 0.0}), capture(model) as seen:
            thread = threading.Thread(target=lambda: results.append(model(TOKENS).detach()))
            thread.start()
            thread.join()
            assert not seen
            assert bool((model(TOKENS) == 0).all())
    torch.testing.assert_close(results[0], plain, rtol=1e-12, atol=1e-12)
