"""Stacked training against training alone: one mathematics in float64, equal up to rounding in float32."""

import math

import numpy as np
import pytest
import torch
from measured_transformer.internals.capture import capture
from measured_transformer.models.config import Config
from measured_transformer.tasks.lag import Lag
from measured_transformer.tasks.noisy_translation import NoisyTranslation
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training import ensemble, jobs, loop, stacked
from measured_transformer.training.ensemble import train_ensemble
from measured_transformer.training.loop import train
from measured_transformer.training.schedules import Constant
from measured_transformer.training.stacked import CannotStackError, train_stacked
from measured_transformer.training.store import Store

REVERSAL = Reversal(vocab=5, length=4)
LAG = Lag(vocab=5, length=6, lag=3)
PADDED = NoisyTranslation(symbols=5, length=6, pad_share=0.4)
CONFIG = Config(vocab=8, d_model=16, n_layers=1, n_heads=2, d_ff=16)
SEEDS = (3, 0, 4)
ASK = {"steps": 10, "learning_rate": 3e-3, "batch_size": 8}
ARRAYS = (
    "losses",
    "rates",
    "gradient_norms",
    "evaluated",
    "evaluation_losses",
    "evaluation_accuracies",
)


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch):
    for module in (loop, stacked, jobs):
        monkeypatch.setattr(module, "find_device", lambda: torch.device("cpu"))


@pytest.fixture
def precise():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def alone(config, task, **options):
    return [train(config, task, seed=seed, **options) for seed in SEEDS]


def assert_same(ours, theirs, *, atol):
    assert [run.seed for run in ours] == [run.seed for run in theirs]
    for a, b in zip(ours, theirs, strict=True):
        for name in ARRAYS:
            np.testing.assert_allclose(
                getattr(a, name), getattr(b, name), rtol=0, atol=atol, err_msg=name
            )
        states = [run.model.state_dict() for run in (a, b)]
        assert states[0].keys() == states[1].keys()
        for name in states[0]:
            torch.testing.assert_close(states[0][name], states[1][name], rtol=0, atol=atol)
        assert a.diverged == b.diverged
        assert not a.model.training


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"optimiser": "AdamW", "weight_decay": 0.3, "clip": 0.1, "schedule": Constant(warmup=5)},
        {"optimiser": "RAdam", "betas": (0.8, 0.9), "label_smoothing": 0.2},
        {"optimiser": "SGD", "learning_rate": 0.3, "clip": None, "weight_decay": 0.1},
        {"optimiser": "Adam", "evaluate_every": 3},
    ],
)
def test_a_member_is_what_it_is_alone(precise, options):
    # In float64 rounding is 1e-16: what is left after ten steps shows other mathematics, had there been any.
    # Without biases: softmax does not feel the keys', whose gradient is rounding that Adam blows up.
    config, options = CONFIG.replace(bias=False), {**ASK, **options}
    assert_same(
        train_stacked(config, LAG, SEEDS, **options), alone(config, LAG, **options), atol=1e-9
    )


@pytest.mark.parametrize("task", [REVERSAL, LAG, PADDED])
@pytest.mark.parametrize(
    "change",
    [
        {"positions": "learned", "placement": "post", "norm": "rms"},
        {"positions": "rotary", "n_kv_heads": 1, "activation": "swiglu"},
        {"positions": "alibi", "tie_embeddings": True, "initialisation": "gpt2"},
        {"positions": "relative", "n_layers": 2},
        {"positions": "none", "residual": False, "norm": "none"},
    ],
)
def test_every_kind_of_model_can_be_stacked(precise, task, change):
    config, options = CONFIG.replace(bias=False, **change), {**ASK, "steps": 3}
    assert_same(
        train_stacked(config, task, SEEDS, **options), alone(config, task, **options), atol=1e-9
    )


def test_in_float32_the_difference_is_rounding():
    # One sum of a few hundred float32 terms errs by some 1e-6; Adam's division makes at most a hundredfold
    # of it within ten steps at this rate.
    config = Config(vocab=8, d_model=64, n_heads=2, bias=False)
    options = {**ASK, "batch_size": 64, "learning_rate": 1e-3}
    ours, theirs = train_stacked(config, LAG, SEEDS, **options), alone(config, LAG, **options)
    assert_same(ours, theirs, atol=1e-4)
    assert not np.allclose(ours[0].losses, ours[1].losses, atol=1e-3)


def frozen_table(model):
    model.positions.table.requires_grad_(False)


def test_what_is_prepared_and_frozen_stays_so(precise):
    config = CONFIG.replace(positions="learned", bias=False)
    options = {**ASK, "prepare": frozen_table, "weight_decay": 0.5}
    ours, theirs = (
        train_stacked(config, LAG, SEEDS, **options),
        alone(config, LAG, **options),
    )
    assert_same(ours, theirs, atol=1e-9)
    assert not ours[1].model.positions.table.requires_grad


class Spoils:
    """Gives one of the members, by its turn, a weight that is no number, or large ones."""

    def __init__(self, turn, factor):
        self.turn, self.factor = turn, factor

    def __call__(self, model):
        if self.turn == 0:
            with torch.no_grad():
                model.unembedding.weight.mul_(self.factor)
        self.turn -= 1


def test_a_member_that_diverges_at_once_is_recorded_and_touches_no_other(precise):
    config, options = CONFIG.replace(bias=False), {**ASK, "evaluate_every": 1}
    ours = train_stacked(config, LAG, SEEDS, prepare=Spoils(1, math.nan), **options)
    theirs = alone(config, LAG, **options)
    assert_same([ours[0], ours[2]], [theirs[0], theirs[2]], atol=1e-9)
    lost = train(config, LAG, seed=SEEDS[1], prepare=Spoils(0, math.nan), **options)
    assert lost.diverged
    assert ours[1].diverged
    assert len(ours[1].losses) == len(ours[1].evaluated) == len(lost.losses) == 1
    for a, b in zip(ours[1].model.parameters(), lost.model.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)


def test_a_member_that_diverges_on_the_way_stops_where_it_would_alone(precise):
    # Logits of 1e150 are numbers; after one step of SGD with their gradients, squares of the stream are not.
    config, options = CONFIG.replace(bias=False), {**ASK, "optimiser": "SGD", "clip": None}
    ours = train_stacked(config, LAG, SEEDS, prepare=Spoils(1, 1e150), **options)
    theirs = alone(config, LAG, **options)
    assert_same([ours[0], ours[2]], [theirs[0], theirs[2]], atol=1e-9)
    lost = train(config, LAG, seed=SEEDS[1], prepare=Spoils(0, 1e150), **options)
    assert ours[1].diverged
    assert lost.diverged
    assert 1 < len(ours[1].losses) == len(lost.losses) < ASK["steps"]
    assert math.isfinite(ours[1].losses[0])
    assert not math.isfinite(ours[1].losses[-1])
    for a, b in zip(ours[1].model.parameters(), lost.model.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)  # as they stood before that step


def test_what_cannot_be_stacked_is_refused(monkeypatch):
    with pytest.raises(CannotStackError, match="dropout"):
        train_stacked(CONFIG.replace(dropout=0.1), LAG, SEEDS, **ASK)

    def freezes_the_second(model, seen=[]):  # noqa: B006
        seen.append(model)
        model.unembedding.weight.requires_grad_(len(seen) != 2)

    with pytest.raises(CannotStackError, match="form"):
        train_stacked(CONFIG, LAG, SEEDS, prepare=freezes_the_second, **ASK)

    watching = []

    def watches(model):
        watching.append(capture(model, "logits"))
        watching[-1].__enter__()

    with pytest.raises(CannotStackError, match="watches"):
        train_stacked(CONFIG, LAG, SEEDS, prepare=watches, **ASK)

    def growing(self, generator, size, *, length=None, calls=[]):  # noqa: B006
        calls.append(1)
        return batch(self, generator, size, length=5 + len(calls) % 2)

    batch = Lag.batch
    monkeypatch.setattr(Lag, "batch", growing)
    with pytest.raises(CannotStackError, match="shapes"):
        train_stacked(CONFIG, LAG, SEEDS, **ASK)
    with pytest.raises(ValueError, match="steps"):
        train_stacked(CONFIG, LAG, SEEDS, **{**ASK, "steps": -1})
    assert train_stacked(CONFIG, LAG, [], **ASK) == []


# --- in an ensemble ---------------------------------------------------------------------------------


@pytest.fixture
def sizes(monkeypatch):
    """The sizes of the stacks that are trained."""
    seen, original = [], ensemble.train_stacked

    def counted(config, task, seeds, **options):
        seen.append(len(seeds))
        return original(config, task, seeds, **options)

    monkeypatch.setattr(ensemble, "train_stacked", counted)
    return seen


def test_a_store_tells_stacked_from_alone(tmp_path, sizes):
    stack = train_ensemble(CONFIG, LAG, SEEDS, store=tmp_path, stacked=True, **ASK)
    each = train_ensemble(CONFIG, LAG, SEEDS, store=tmp_path, **ASK)
    assert sizes == [3]
    assert len(list(tmp_path.glob("*.safetensors"))) == 6
    again = train_ensemble(CONFIG, LAG, [*SEEDS, 9], store=tmp_path, stacked=True, **ASK)
    assert sizes == [3, 1]
    assert_same(again[:3], stack, atol=0)
    assert_same(train_ensemble(CONFIG, LAG, SEEDS, store=tmp_path, **ASK), each, atol=0)
    assert_same(each, alone(CONFIG, LAG, **ASK), atol=0)


def test_on_an_accelerator_several_are_stacked_and_what_cannot_be_is_trained_alone(
    tmp_path, monkeypatch, sizes
):
    monkeypatch.setattr(ensemble, "find_device", lambda: torch.device("cuda"))
    train_ensemble(CONFIG, LAG, SEEDS, store=tmp_path, **ASK)
    assert sizes == [3]
    train_ensemble(CONFIG, LAG, SEEDS, store=tmp_path, **ASK)
    train_ensemble(CONFIG, LAG, [17], store=tmp_path, **ASK)
    train_ensemble(CONFIG, LAG, SEEDS, store=tmp_path, stacked=False, **ASK)
    assert sizes == [3]
    config = CONFIG.replace(dropout=0.1)
    runs = train_ensemble(config, LAG, SEEDS, store=None, **ASK)
    assert_same(runs, alone(config, LAG, **ASK), atol=0)
    with pytest.raises(CannotStackError, match="dropout"):
        train_ensemble(config, LAG, SEEDS, store=None, stacked=True, **ASK)


def test_a_stack_too_large_for_the_memory_is_halved(monkeypatch):
    seen, original = [], ensemble.train_stacked

    def small(config, task, seeds, **options):
        seen.append(len(seeds))
        if len(seeds) > 2:
            raise torch.OutOfMemoryError
        return original(config, task, seeds, **options)

    monkeypatch.setattr(ensemble, "train_stacked", small)
    runs = train_ensemble(CONFIG, LAG, range(5), store=None, stacked=True, **ASK)
    assert seen == [5, 2, 2, 1]
    assert [run.seed for run in runs] == [0, 1, 2, 3, 4]


def test_a_stack_that_another_process_has_trained_meanwhile_is_taken(tmp_path, monkeypatch, sizes):
    locked = Store.locked

    def late(self, key, *, wait=True):
        if not sizes:  # while this one waits for its first lock
            monkeypatch.setattr(Store, "locked", locked)
            train_ensemble(CONFIG, LAG, SEEDS[:2], store=tmp_path, stacked=True, **ASK)
        return locked(self, key, wait=wait)

    monkeypatch.setattr(Store, "locked", late)
    runs = train_ensemble(CONFIG, LAG, SEEDS, store=tmp_path, stacked=True, **ASK)
    assert sizes == [2, 1]
    assert [run.seed for run in runs] == list(SEEDS)
