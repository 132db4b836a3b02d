"""Adam with filled averages is Adam where nothing is held; a z-loss adds its own gradient and no more."""

import pytest
import torch
from measured_transformer.models.config import Config
from measured_transformer.models.encoder import Encoder
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training.loop import make_model, predict, train
from measured_transformer.training.losses import cross_entropy
from measured_transformer.training.seeding import make_generator
from measured_transformer.variants.optimisers import AdamWithFilled, ZLoss
from torch import nn

TASK = Reversal(vocab=4, length=4)
CONFIG = Config(vocab=4, d_model=8, n_layers=1, n_heads=2)
GIVEN = {"learning_rate": 0.01, "seed": 3, "batch_size": 4, "clip": None}


class One(Encoder):
    """One weight whose gradient is what the caller says."""

    def __init__(self):
        nn.Module.__init__(self)
        self.weight = nn.Parameter(torch.zeros(1, dtype=torch.float64))


def directions(settings, gradients):
    model, found = One(), []
    settings(model)
    for gradient in gradients:
        model.weight.grad = None
        (gradient * model.weight).sum().backward()
        found.append(model.weight.grad.item())
    return found


def test_with_no_step_held_it_is_adam():
    adam = train(CONFIG, TASK, steps=8, **GIVEN)
    own = {"optimiser": "SGD", "betas": (0.0, 0.0), "prepare": AdamWithFilled(0)}
    run = train(CONFIG, TASK, steps=8, **GIVEN, **own)
    expected = dict(adam.model.named_parameters())
    for name, found in run.model.named_parameters():
        if not name.endswith("key.bias"):  # it moves no score, so its gradient is rounding alone
            assert torch.allclose(found, expected[name], atol=1e-5), name


@pytest.mark.parametrize(
    "filled",
    ["neither", "second", "first", "both"],
)
def test_what_is_filled_decides_over_the_first_move(filled):
    # Held over two gradients of 3; the third is 1. With constants both averages are exact.
    held = AdamWithFilled(2, filled, betas=(0.999999, 0.999999), eps=0.0)
    found = directions(held, [3.0, 3.0, 1.0])
    assert found[:2] == [0.0, 0.0]
    m = {"neither": 1, "second": 1, "first": 7 / 3, "both": 7 / 3}[filled]
    v = {"neither": 1, "second": 19 / 3, "first": 1, "both": 19 / 3}[filled]
    assert found[2] == pytest.approx(m / v**0.5, rel=1e-4)


def test_an_average_that_was_not_filled_begins_at_full_size():
    found = directions(AdamWithFilled(5, "second", eps=0.0), [2.0] * 5 + [-2.0])
    assert found[-1] == pytest.approx(-1.0)


def test_bad_settings_are_told():
    with pytest.raises(ValueError, match="negative"):
        AdamWithFilled(-1)
    with pytest.raises((ValueError, TypeError), match="filled"):
        AdamWithFilled(1, "none")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="finite"):
        ZLoss(-1.0)


def test_the_z_loss_adds_its_gradient():
    batch = TASK.batch(make_generator(0, "training"), 8)

    def gradients(prepare, penalty):
        model = make_model(CONFIG, causal=False, seed=1)
        prepare(model)
        logits = predict(model, batch)
        loss = cross_entropy(logits, batch.targets, batch.scored)
        (loss + penalty * logits.logsumexp(-1).square().mean()).backward()
        return [weight.grad for weight in model.parameters()]

    expected = gradients(lambda model: None, 0.1)
    for found, right in zip(gradients(ZLoss(0.1), 0.0), expected, strict=True):
        assert torch.allclose(found, right, atol=1e-6)


def test_the_z_loss_leaves_a_model_that_only_looks_alone():
    model = make_model(CONFIG, causal=False, seed=1)
    batch = TASK.batch(make_generator(0, "training"), 8)
    with torch.no_grad():
        before = predict(model, batch)
        ZLoss()(model)
        assert predict(model, batch).equal(before)
