"""The hook after each step: what it is told, where it ends a training, and that it changes nothing else."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from measured_transformer.models.config import Config
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training import ensemble, jobs, loop
from measured_transformer.training.ensemble import train_ensemble
from measured_transformer.training.jobs import make_jobs
from measured_transformer.training.loop import train
from measured_transformer.training.stacked import CannotStackError, train_stacked

TASK = Reversal(vocab=5, length=4)
CONFIG = Config(vocab=5, d_model=16, n_layers=1, n_heads=2, d_ff=16, dropout=0.1)
ASK = {"learning_rate": 3e-3, "batch_size": 8, "evaluate_every": 5}


@dataclass(frozen=True)
class EndsAt:
    """Ends a training after so many steps."""

    number: int

    def __call__(self, step):
        return step.number == self.number


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch):
    for module in (loop, ensemble, jobs):
        monkeypatch.setattr(module, "find_device", lambda: torch.device("cpu"))


def same(one, other):
    pairs = zip(one.model.parameters(), other.model.parameters(), strict=True)
    arrays = ("losses", "rates", "gradient_norms", "evaluated", "evaluation_losses")
    return all(torch.equal(a, b) for a, b in pairs) and all(
        np.array_equal(getattr(one, name), getattr(other, name)) for name in arrays
    )


def test_it_is_told_of_each_step_and_changes_nothing():
    told, weights = [], []

    def look(step):
        assert step.model.training
        told.append((step.number, step.loss, step.rate, step.gradient_norm, len(step.losses)))
        weights.append(step.model.unembedding.weight.detach().clone())

    run = train(CONFIG, TASK, steps=12, seed=3, after_step=look, **ASK)
    assert same(run, train(CONFIG, TASK, steps=12, seed=3, **ASK))
    numbers, losses, rates, norms, lengths = (
        np.array(column) for column in zip(*told, strict=True)
    )
    assert numbers.tolist() == lengths.tolist() == list(range(1, 13))
    assert np.array_equal(losses, run.losses)
    assert np.array_equal(rates, run.rates)
    assert np.array_equal(norms, run.gradient_norms)
    assert torch.equal(weights[-1], run.model.unembedding.weight)
    five = train(CONFIG, TASK, steps=5, seed=3, **ASK)
    assert torch.equal(weights[4], five.model.unembedding.weight)


@pytest.mark.parametrize("number", [1, 5, 12])
def test_where_it_returns_true_the_training_ends(number):
    run = train(CONFIG, TASK, steps=12, seed=3, after_step=EndsAt(number), **ASK)
    assert same(run, train(CONFIG, TASK, steps=number, seed=3, **ASK))


def test_a_training_that_ended_does_not_go_on_from_its_checkpoint(tmp_path):
    options = {**ASK, "after_step": EndsAt(7), "checkpoint": tmp_path / "run"}
    first = train(CONFIG, TASK, steps=20, seed=3, **options)
    again = train(CONFIG, TASK, steps=20, seed=3, **options)
    assert len(first.losses) == 7
    assert same(first, again)


@pytest.mark.parametrize("other", [None, EndsAt(8)])
def test_a_checkpoint_belongs_to_its_hook(tmp_path, other):
    options = {**ASK, "checkpoint": tmp_path / "run"}
    train(CONFIG, TASK, steps=4, seed=3, after_step=EndsAt(7), **options)
    with pytest.raises(ValueError, match="another training"):
        train(CONFIG, TASK, steps=20, seed=3, after_step=other, **options)


def test_an_interrupted_training_ends_where_it_would_have(tmp_path):
    options = {**ASK, "after_step": EndsAt(7)}
    train(CONFIG, TASK, steps=4, seed=3, checkpoint=tmp_path / "run", **options)
    resumed = train(CONFIG, TASK, steps=20, seed=3, checkpoint=tmp_path / "run", **options)
    assert same(resumed, train(CONFIG, TASK, steps=20, seed=3, **options))


def test_a_stored_run_belongs_to_its_hook(tmp_path):
    hooks = (None, EndsAt(3), EndsAt(4))
    asked = [make_jobs(CONFIG, TASK, [0], {"steps": 6, **ASK, "after_step": h})[0] for h in hooks]
    assert len({job.asked()["settings"]["after_step"] for job in asked}) == 3
    assert [job.made for job in asked] == [
        [TASK, loop._CONSTANT, *filter(None, [h])] for h in hooks
    ]
    for hook, steps in zip(hooks, (6, 3, 4), strict=True):
        options = {"steps": 6, **ASK, "after_step": hook, "store": tmp_path}
        for _ in range(2):
            (run,) = train_ensemble(CONFIG, TASK, [0], **options)
            assert len(run.losses) == steps


def test_runs_with_a_hook_are_not_stacked(monkeypatch):
    config, options = CONFIG.replace(dropout=0.0), {"steps": 6, **ASK, "after_step": EndsAt(3)}
    with pytest.raises(CannotStackError, match="after_step"):
        train_stacked(config, TASK, [0, 1], **options)
    with pytest.raises(CannotStackError, match="after_step"):
        train_ensemble(config, TASK, [0, 1], stacked=True, store=None, **options)
    monkeypatch.setattr(ensemble, "find_device", lambda: torch.device("cuda"))  # would stack
    runs = train_ensemble(config, TASK, [0, 1], store=None, **options)
    assert [len(run.losses) for run in runs] == [3, 3]
    assert same(runs[1], train(config, TASK, seed=1, **options))
