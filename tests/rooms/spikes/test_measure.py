"""What the chapter on loss spikes measures, against `train` and against what is known by other ways."""

import math

import numpy as np
import pytest
import torch
from measured_book.evidence.results import load_results
from measured_book.rooms.spikes import measure, reading
from measured_book.rooms.spikes.measure import (
    AT,
    BETA,
    CALM_RATE,
    CONFIG,
    NEAR,
    REWOUND,
    SPIKE_RATE,
    TASK,
    WARMUP,
    Training,
    batches_of,
)
from measured_transformer.training.device import settled
from measured_transformer.training.loop import train
from measured_transformer.training.schedules import Constant

RESULTS = load_results("spikes")
CPU = torch.device("cpu")


def test_a_training_step_by_step_is_that_of_train_and_a_copy_goes_on_by_itself():
    batches = batches_of(3, 30)
    with settled(CPU):
        line = Training(3, SPIKE_RATE)
        for batch in batches[:20]:
            line.step(batch)
        copy = line.copy()
        for batch in batches[20:]:
            line.step(batch)
        assert len(copy.losses) == 20
        for batch in batches[20:]:
            copy.step(batch)
    given = {"learning_rate": SPIKE_RATE, "batch_size": 32, "clip": None}
    run = train(CONFIG, TASK, steps=30, seed=3, schedule=Constant(WARMUP), **given)
    assert line.losses == copy.losses == run.losses.tolist()
    assert line.norms == run.gradient_norms.tolist()


@pytest.mark.parametrize(
    ("clip", "bound"), [(measure.to_one, 1.0), (measure.twice_the_median, 4.0)]
)
def test_bounds_on_the_gradient(clip, bound):
    assert clip([1.0] * 5 + [2.0] * 20) == bound


def test_a_bound_that_follows_needs_twenty_norms():
    assert measure.twice_the_median([1.0] * 19) is None


def test_the_same_batches_give_the_same_spike():
    rewound = RESULTS["rewound"]
    again = rewound.again.sel(arm="same batches")
    assert (again == rewound.spiked).all()
    assert not rewound.again.where(~rewound.spiked.astype(bool), False).any()
    assert tuple(rewound.arm.values) == REWOUND


def test_a_spike_by_chance_is_as_frequent_as_in_runs_of_the_same_model():
    betas = RESULTS["betas"].sel(beta=BETA)
    rate = float(betas.spikes.sum() / betas.ready.sum())
    by_steps = 1 - math.exp((2 * NEAR + 1) * math.log1p(-rate))
    assert reading.chance(RESULTS["betas"]) == pytest.approx(by_steps)


def test_one_step_is_no_longer_than_adam_can_make_it():
    """At most (1 - b1) / sqrt(1 - b2) rates where gradients before were silent; a corrected start is 1."""
    for arm, beta in (("beta 0.95", 0.95), ("beta 0.98", 0.98), ("beta 0.999", 0.999)):
        first = RESULTS["odd"]["first"].sel(arm=arm)
        assert (first < 1.0 + 0.1 / math.sqrt(1 - beta)).all()


def test_averages_that_begin_anew_are_empty_and_corrected():
    batches = batches_of(4, 6)
    with settled(CPU):
        line = Training(4, SPIKE_RATE)
        for batch in batches[:5]:
            line.step(batch)
        before = [weight.detach().clone() for weight in line.model.parameters()]
        line.forget()
        line.step(batches[5])
    rate = SPIKE_RATE * 6 / WARMUP
    pairs = zip(before, line.model.parameters(), strict=True)
    moves = torch.cat([(old - new).abs().flatten() for old, new in pairs]) / rate
    assert moves.median().item() == pytest.approx(1, abs=0.02), (
        "a first step of Adam is one rate long"
    )


def test_odd_batches_are_met_by_models_that_have_learned():
    assert (RESULTS["odd"].before < 0.05).all()
    assert AT > WARMUP
    assert CALM_RATE < SPIKE_RATE
    assert np.isfinite(RESULTS["odd"].height).all()
