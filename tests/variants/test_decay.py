"""Independent decay takes the share that the schedule says, whatever the rate, and no step twice."""

import pytest
import torch
from measured_transformer.models.config import Config
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training import loop
from measured_transformer.training.checkpoints import write_checkpoint
from measured_transformer.training.loop import train
from measured_transformer.training.schedules import WarmupLinear
from measured_transformer.variants.decay import IndependentDecay, room_for_decay
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
