"""The mean of the last states is that of the states which a training goes through, interrupted or not."""

import pytest
import torch
from measured_transformer.models.config import Config
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training import loop
from measured_transformer.training.checkpoints import write_checkpoint
from measured_transformer.training.jobs import make_jobs
from measured_transformer.training.loop import train
from measured_transformer.training.store import Store
from measured_transformer.variants.averages import MeanOfLast, room_for_a_mean
from torch.nn.utils import parameters_to_vector

TASK = Reversal(vocab=4, length=4)
CONFIG = Config(vocab=4, d_model=8, n_layers=1, n_heads=2, tie_embeddings=True)
STEPS = 7
GIVEN = {"learning_rate": 0.03, "batch_size": 4}
OWN = {"prepare": room_for_a_mean, "after_step": MeanOfLast(3, STEPS)}


def weights(run):
    return parameters_to_vector(run.model.parameters()).detach()


@pytest.mark.parametrize("last", [1, 3, STEPS])
def test_the_model_is_the_mean_of_the_states_after_the_last_steps(last):
    own = {"prepare": room_for_a_mean, "after_step": MeanOfLast(last, STEPS)}
    run = train(CONFIG, TASK, steps=STEPS, seed=1, **GIVEN, **own)
    ends = range(STEPS - last + 1, STEPS + 1)
    states = [weights(train(CONFIG, TASK, steps=end, seed=1, **GIVEN)) for end in ends]
    torch.testing.assert_close(weights(run), torch.stack(states).mean(0))


def test_the_training_itself_is_not_touched():
    plain = train(CONFIG, TASK, steps=STEPS, seed=1, **GIVEN)
    run = train(CONFIG, TASK, steps=STEPS, seed=1, **GIVEN, **OWN)
    assert run.losses.tolist() == plain.losses.tolist()
    assert not torch.equal(weights(run), weights(plain))


def test_a_training_that_goes_on_from_a_checkpoint_has_the_same_mean(tmp_path, monkeypatch):
    whole = weights(train(CONFIG, TASK, steps=STEPS, seed=1, **GIVEN, **OWN))
    kept = {"checkpoint": tmp_path / "state", "checkpoint_every": 6}

    def halt(*state):
        write_checkpoint(*state)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(loop, "write_checkpoint", halt)
        with pytest.raises(KeyboardInterrupt):
            train(CONFIG, TASK, steps=STEPS, seed=1, **GIVEN, **OWN, **kept)
    for _ in range(2):  # the second time it has nothing to do but to ask the hook once more
        run = train(CONFIG, TASK, steps=STEPS, seed=1, **GIVEN, **OWN, **kept)
        assert torch.equal(weights(run), whole)


def test_a_store_gives_the_mean_back(tmp_path):
    (job,) = make_jobs(CONFIG, TASK, [1], {"steps": STEPS, **GIVEN, **OWN})
    store = Store(tmp_path)
    assert job.key() is not None
    run = job.load_or_train(store)
    assert store.file(job.key()).exists()
    assert torch.equal(weights(job.load_or_train(store)), weights(run))


@pytest.mark.parametrize("last", [0, 8])
def test_as_many_states_as_there_are(last):
    with pytest.raises(ValueError, match=f"from 1 to steps=7, got {last}"):
        MeanOfLast(last, STEPS)


def test_a_model_without_room_is_refused():
    with pytest.raises(ValueError, match="prepare=room_for_a_mean"):
        train(CONFIG, TASK, steps=STEPS, seed=1, **GIVEN, after_step=MeanOfLast(3, STEPS))
