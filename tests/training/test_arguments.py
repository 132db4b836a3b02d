"""What is no training is refused before it begins, by every way to train."""

import math

import numpy as np
import pytest
import torch
from measured_transformer.models.config import Config
from measured_transformer.tasks.lag import Lag
from measured_transformer.training.arguments import check_training, rate_at
from measured_transformer.training.ensemble import train_ensemble
from measured_transformer.training.loop import train
from measured_transformer.training.schedules import Constant, WarmupCosine
from measured_transformer.training.stacked import train_stacked
from measured_transformer.training.sweep import SweepError, sweep

TASK = Lag(vocab=8, lag=3)
CONFIG = Config(vocab=8, d_model=16, n_layers=1, n_heads=2, positions="rotary")
RIGHT = {"steps": 3, "learning_rate": 0.01}
WAYS = {
    "train": lambda config, given: train(config, TASK, seed=0, **given),
    "ensemble": lambda config, given: train_ensemble(config, TASK, [0, 1], store=None, **given),
    "stacked": lambda config, given: train_stacked(config, TASK, [0, 1], **given),
    "sweep": lambda config, given: sweep(
        {"one": config}, [0], task=TASK, store=None, progress=False, **given
    ),
}
WRONG = [
    ({"clip": -1.0}, "clip"),
    ({"clip": 0.0}, "clip"),
    ({"clip": math.nan}, "clip"),
    ({"steps": -1}, "steps"),
    ({"steps": 2.5}, "steps"),
    ({"learning_rate": 0.0}, "learning_rate"),
    ({"learning_rate": -0.1}, "learning_rate"),
    ({"learning_rate": math.nan}, "learning_rate"),
    ({"learning_rate": math.inf}, "learning_rate"),
    ({"batch_size": 0}, "batch_size"),
    ({"batch_size": 2.0}, "batch_size"),
    ({"weight_decay": -0.1}, "weight_decay"),
    ({"weight_decay": math.nan}, "weight_decay"),
    ({"eps": -1e-8}, "eps"),
    ({"betas": (0.9, 1.0)}, "betas"),
    ({"betas": (-0.1, 0.9)}, "betas"),
    ({"betas": (0.9,)}, "betas"),
    ({"label_smoothing": 1.5}, "label_smoothing"),
    ({"label_smoothing": -0.1}, "label_smoothing"),
    ({"evaluate_every": 0}, "evaluate_every"),
    ({"evaluate_every": 1.5}, "evaluate_every"),
    ({"threads": 0}, "threads"),
    ({"optimiser": "Adagrad"}, "optimiser"),
]


class Bent:
    """A schedule whose factor is something else at step 2."""

    def __init__(self, factor):
        self.factor = factor

    def __call__(self, step):
        return self.factor if step == 2 else 1.0


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("given", "name"), WRONG, ids=lambda x: str(x))
def test_a_number_out_of_range_is_refused_by_every_way_to_train(unhooked, way, given, name):
    with pytest.raises(ValueError, match=name):
        WAYS[way](CONFIG, {**RIGHT, **given})


@pytest.mark.parametrize("way", WAYS)
def test_a_model_without_logits_is_not_trained_on_its_states(way):
    with pytest.raises(ValueError, match="head='none'"):
        WAYS[way](CONFIG.replace(head="none"), RIGHT)


@pytest.mark.parametrize("factor", [-0.5, -1e-9, math.nan, math.inf])
@pytest.mark.parametrize("way", WAYS)
def test_a_schedule_below_zero_is_refused_at_its_step(unhooked, way, factor):
    kind = SweepError if way == "sweep" else ValueError
    with pytest.raises(kind, match=r"at least 0 at every step.* at step 2"):
        WAYS[way](CONFIG, {**RIGHT, "schedule": Bent(factor)})
    WAYS[way](CONFIG, {**RIGHT, "schedule": Bent(factor), "steps": 2})  # which is never reached


def test_the_rate_of_a_step_is_the_product():
    assert rate_at(0.5, Constant(), 3) == 0.5
    assert rate_at(0.5, Bent(0.0), 2) == 0.0
    assert rate_at(2.0, WarmupCosine(warmup=2, steps=4), 0) == 1.0


@pytest.mark.parametrize("clip", [None, 1e-12, math.inf])
def test_what_is_no_fault_passes(unhooked, clip):
    train(CONFIG, TASK, seed=0, steps=np.int64(1), learning_rate=0.01, clip=clip)
    check_training(
        CONFIG,
        TASK,
        {
            **RIGHT,
            "seed": 0,
            "schedule": Constant(),
            "prepare": None,
            "after_step": None,
            "checkpoint": None,
            "batch_size": 1,
            "optimiser": "SGD",
            "betas": (0.0, 0.0),
            "eps": 0.0,
            "weight_decay": 0.0,
            "clip": clip,
            "label_smoothing": 0.0,
            "evaluate_every": None,
            "checkpoint_every": 1,
            "threads": None,
        },
    )


def test_a_checkpoint_beyond_the_steps_is_refused_and_stays(tmp_path):
    file = tmp_path / "run.safetensors"
    whole = train(CONFIG, TASK, seed=0, steps=6, learning_rate=0.01, checkpoint=file)
    before = file.read_bytes()
    with pytest.raises(ValueError, match="taken 6 steps, more than steps=4"):
        train(CONFIG, TASK, seed=0, steps=4, learning_rate=0.01, checkpoint=file)
    assert file.read_bytes() == before
    again = train(CONFIG, TASK, seed=0, steps=6, learning_rate=0.01, checkpoint=file)
    assert again.losses.tolist() == whole.losses.tolist()
    further = train(CONFIG, TASK, seed=0, steps=7, learning_rate=0.01, checkpoint=file)
    assert further.losses[:6].tolist() == whole.losses.tolist()
    weights = zip(again.model.parameters(), whole.model.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in weights)
