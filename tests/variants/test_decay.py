"""Independent decay takes the share that the schedule says, whatever the rate, and no step twice."""

import pytest
import torch
from measured_transformer.models.config import Config
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training import loop
from measured_transformer.training.checkpoints import write_checkpoint
from measured_transformer.training.loop import train
from measured_transformer.training.schedules import WarmupLinear
from measured_transformer.variants.decay import DecayExcept, IndependentDecay, room_for_decay
from torch.nn.utils import parameters_to_vector

TASK = Reversal(vocab=4, length=4)
CONFIG = Config(vocab=4, d_model=8, n_layers=1, n_heads=2)
STEPS = 5
SCHEDULE = WarmupLinear(2, STEPS)
GIVEN = {"batch_size": 4, "schedule": SCHEDULE}


def own(strength):
    return {"prepare": room_for_decay, "after_step": IndependentDecay(strength, SCHEDULE)}


def weights(run):
    return parameters_to_vector(run.model.parameters()).detach()


def test_with_next_to_no_rate_only_the_decay_is_left():
    fresh = parameters_to_vector(
        loop.make_model(CONFIG, causal=False, seed=1).parameters()
    ).detach()
    run = train(CONFIG, TASK, steps=STEPS, seed=1, learning_rate=1e-9, **GIVEN, **own(0.2))
    kept = 1.0
    for step in range(STEPS):
        kept *= 1 - 0.2 * SCHEDULE(step)
    torch.testing.assert_close(weights(run), kept * fresh, rtol=1e-5, atol=1e-6)


def test_at_one_rate_it_is_the_decay_of_gradient_descent_to_first_order():
    rate, decay = 1e-3, 0.1
    given = {"steps": STEPS, "seed": 1, "learning_rate": rate, "optimiser": "SGD", **GIVEN}
    given |= {"betas": (0.0, 0.0), "clip": None}
    theirs = weights(train(CONFIG, TASK, weight_decay=decay, **given))
    ours = weights(train(CONFIG, TASK, **given, **own(rate * decay)))
    without = weights(train(CONFIG, TASK, **given))
    assert (ours - theirs).norm() < 0.02 * (without - theirs).norm()


def test_no_strength_changes_nothing():
    plain = train(CONFIG, TASK, steps=STEPS, seed=1, learning_rate=0.01, **GIVEN)
    run = train(CONFIG, TASK, steps=STEPS, seed=1, learning_rate=0.01, **GIVEN, **own(0.0))
    assert torch.equal(weights(run), weights(plain))


def test_a_training_that_goes_on_from_a_checkpoint_decays_no_step_twice(tmp_path, monkeypatch):
    given = {**GIVEN, **own(0.1), "learning_rate": 0.01, "steps": STEPS, "seed": 1}
    whole = weights(train(CONFIG, TASK, **given))
    kept = {"checkpoint": tmp_path / "state", "checkpoint_every": 3}

    def halt(*state):
        write_checkpoint(*state)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(loop, "write_checkpoint", halt)
        with pytest.raises(KeyboardInterrupt):
            train(CONFIG, TASK, **given, **kept)
    for _ in range(2):  # the second time it has nothing to do but to ask the hook once more
        assert torch.equal(weights(train(CONFIG, TASK, **given, **kept)), whole)


def test_a_model_without_room_and_a_strength_of_one_are_refused():
    hook = {"after_step": IndependentDecay(0.1, SCHEDULE)}
    with pytest.raises(ValueError, match="prepare=room_for_decay"):
        train(CONFIG, TASK, steps=1, seed=1, learning_rate=0.01, **GIVEN, **hook)
    with pytest.raises(ValueError, match=r"\[0, 1\), got 1"):
        IndependentDecay(1.0, SCHEDULE)


SPARED = ("bias",)


def spare(strength, spared=SPARED):
    return {"prepare": room_for_decay, "after_step": DecayExcept(strength, spared)}


def test_what_is_spared_keeps_its_size_and_the_rest_loses_by_rate_and_strength():
    given = {"steps": STEPS, "seed": 1, **GIVEN, "optimiser": "SGD", "betas": (0.0, 0.0)}
    run = train(CONFIG, TASK, learning_rate=1e-6, **given, **spare(1e5))
    fresh = dict(loop.make_model(CONFIG, causal=False, seed=1).named_parameters())
    kept = 1.0
    for step in range(STEPS):
        kept *= 1 - 1e5 * 1e-6 * SCHEDULE(step)
    for name, weight in run.model.named_parameters():
        wanted = fresh[name] if name.endswith("bias") else kept * fresh[name]
        torch.testing.assert_close(weight.detach(), wanted.detach(), rtol=1e-3, atol=1e-4)


def test_where_nothing_has_the_name_it_is_the_decay_of_adamw_to_first_order():
    rate, decay = 1e-3, 0.3
    given = {"steps": STEPS, "seed": 1, "learning_rate": rate, **GIVEN}
    theirs = weights(train(CONFIG, TASK, weight_decay=decay, **given))
    ours = weights(train(CONFIG, TASK, **given, **spare(decay, ("no weight",))))
    without = weights(train(CONFIG, TASK, **given))
    assert (ours - theirs).norm() < 0.1 * (without - theirs).norm()


def test_a_step_is_not_decayed_twice_when_it_is_asked_again(tmp_path, monkeypatch):
    given = {**GIVEN, **spare(0.1), "learning_rate": 0.01, "steps": STEPS, "seed": 1}
    whole = weights(train(CONFIG, TASK, **given))
    kept = {"checkpoint": tmp_path / "state", "checkpoint_every": 3}
    train(CONFIG, TASK, **given, **kept)
    assert torch.equal(weights(train(CONFIG, TASK, **given, **kept)), whole)


@pytest.mark.parametrize("strength", [-0.1, float("nan"), float("inf")])
def test_a_strength_that_is_none_is_refused(strength):
    with pytest.raises(ValueError, match="strength"):
        DecayExcept(strength, SPARED)


@pytest.mark.parametrize("spared", [(), "bias", ("",)])
def test_names_that_spare_nothing_or_everything_are_refused(spared):
    with pytest.raises(ValueError, match="ends of names"):
        DecayExcept(0.1, spared)


def test_a_model_that_was_not_prepared_is_refused_by_decay_that_spares():
    with pytest.raises(ValueError, match="room_for_decay"):
        train(
            CONFIG, TASK, steps=1, seed=1, learning_rate=0.01, after_step=DecayExcept(0.1, SPARED)
        )
