"""Schedules against PyTorch's own, against the paper's formula, and at their ends and seams."""

import itertools
import math
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from measured_transformer.training.schedules import (
    Constant,
    ExponentialDecay,
    InverseSquareRoot,
    Noam,
    WarmupCosine,
    WarmupLinear,
    WarmupStableDecay,
    WarmupStableRoot,
)
from torch.optim import lr_scheduler as torch_schedules

RATE = 0.3


def rates(make_scheduler, steps):
    """Run an optimiser under a scheduler and note the rate of each step."""
    weight = torch.nn.Parameter(torch.zeros(1))
    optimiser = torch.optim.SGD([weight], lr=RATE)
    scheduler = make_scheduler(optimiser)
    found = []
    for _ in range(steps):
        found.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        scheduler.step()
    return found


def ours(schedule, steps):
    return rates(lambda optimiser: torch_schedules.LambdaLR(optimiser, schedule), steps)


def after_warmup(optimiser, warmup, rest):
    """PyTorch's linear warm-up whose last step is at the full rate, then another schedule."""
    rise = torch_schedules.LinearLR(optimiser, start_factor=1 / warmup, total_iters=warmup - 1)
    return torch_schedules.SequentialLR(optimiser, [rise, rest], milestones=[warmup - 1])


# --- PyTorch's own --------------------------------------------------------------------------------


def test_exponential_decay_is_pytorchs():
    schedule = ExponentialDecay(rate=0.97)
    expected = rates(lambda o: torch_schedules.ExponentialLR(o, gamma=0.97), 60)
    assert ours(schedule, 60) == pytest.approx(expected, rel=1e-12)


def test_stairs_are_pytorchs_step_decay():
    schedule = ExponentialDecay(rate=0.5, every=7, staircase=True)
    expected = rates(lambda o: torch_schedules.StepLR(o, step_size=7, gamma=0.5), 60)
    assert ours(schedule, 60) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("warmup", [2, 5, 30])
def test_a_decay_after_a_warmup_is_pytorchs_in_sequence(warmup):
    def pytorchs(optimiser):
        rest = torch_schedules.ExponentialLR(optimiser, gamma=0.9)
        return after_warmup(optimiser, warmup, rest)

    assert ours(ExponentialDecay(rate=0.9, warmup=warmup), 50) == pytest.approx(rates(pytorchs, 50))


@pytest.mark.parametrize("warmup", [2, 10])
@pytest.mark.parametrize("final", [0.0, 0.1])
def test_warmup_and_cosine_are_pytorchs_in_sequence(warmup, final):
    def pytorchs(optimiser):
        rest = torch_schedules.CosineAnnealingLR(
            optimiser, T_max=50 - (warmup - 1), eta_min=final * RATE
        )
        return after_warmup(optimiser, warmup, rest)

    schedule = WarmupCosine(warmup=warmup, steps=50, final=final)
    assert ours(schedule, 50) == pytest.approx(rates(pytorchs, 50), rel=1e-9)


def test_the_cosine_alone_is_pytorchs():
    expected = rates(lambda o: torch_schedules.CosineAnnealingLR(o, T_max=40), 40)
    assert ours(WarmupCosine(warmup=0, steps=40), 40) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("warmup", [2, 10])
@pytest.mark.parametrize("final", [0.0, 0.25])
def test_warmup_and_line_are_pytorchs_in_sequence(warmup, final):
    def pytorchs(optimiser):
        length = 50 - (warmup - 1)
        rest = torch_schedules.LinearLR(
            optimiser, start_factor=1.0, end_factor=final, total_iters=length
        )
        return after_warmup(optimiser, warmup, rest)

    schedule = WarmupLinear(warmup=warmup, steps=50, final=final)
    assert ours(schedule, 50) == pytest.approx(rates(pytorchs, 50), rel=1e-9)


def test_warmup_plateau_and_decay_are_pytorchs_in_sequence():
    def pytorchs(optimiser):
        parts = [
            torch_schedules.LinearLR(optimiser, start_factor=1 / 5, total_iters=4),
            torch_schedules.ConstantLR(optimiser, factor=1.0),
            torch_schedules.LinearLR(optimiser, start_factor=1.0, end_factor=0.1, total_iters=12),
        ]
        return torch_schedules.SequentialLR(optimiser, parts, milestones=[4, 28])

    schedule = WarmupStableDecay(warmup=5, steps=40, decay=12, final=0.1)
    assert ours(schedule, 45) == pytest.approx(rates(pytorchs, 45), rel=1e-9)


def test_a_cooldown_by_the_root_is_the_line_but_for_its_end():
    line, root = (kind(5, 40, 12) for kind in (WarmupStableDecay, WarmupStableRoot))
    assert [root(step) for step in range(29)] == [line(step) for step in range(29)]
    assert [root(28 + past) for past in (0, 3, 12, 99)] == pytest.approx([1, 0.5, 0, 0])
    for step in range(29, 40):  # a line's share squared is the root's
        assert (1 - root(step)) ** 2 == pytest.approx(1 - line(step))


def test_a_constant_rate_and_its_warmup_are_pytorchs():
    assert ours(Constant(), 9) == [RATE] * 9
    expected = rates(lambda o: torch_schedules.LinearLR(o, start_factor=1 / 6, total_iters=5), 20)
    assert ours(Constant(warmup=6), 20) == pytest.approx(expected)


# --- closed forms ---------------------------------------------------------------------------------


@given(d_model=st.integers(1, 4096), warmup=st.integers(1, 10_000), number=st.integers(1, 100_000))
def test_noam_is_the_formula_of_the_paper(d_model, warmup, number):
    expected = d_model**-0.5 * min(number**-0.5, number * warmup**-1.5)
    assert Noam(d_model, warmup)(number - 1) == pytest.approx(expected, rel=1e-12)


@given(warmup=st.integers(1, 200), d_model=st.integers(1, 1024))
def test_noam_peaks_at_the_end_of_the_warmup(warmup, d_model):
    schedule = Noam(d_model, warmup)
    values = [schedule(step) for step in range(3 * warmup + 3)]
    assert max(values) == values[warmup - 1] == pytest.approx(schedule.peak)
    assert values[: warmup - 1] == sorted(values[: warmup - 1])
    assert values[warmup - 1 :] == sorted(values[warmup - 1 :], reverse=True)
    assert schedule(4 * warmup - 1) == pytest.approx(schedule.peak / 2), "a quarter of the speed"


@given(time_constant=st.floats(0.5, 1e4), step=st.integers(0, 1000))
def test_the_time_constant_is_where_the_factor_is_one_over_e(time_constant, step):
    schedule = ExponentialDecay.lasting(time_constant)
    assert schedule.time_constant == pytest.approx(time_constant)
    assert schedule(step) == pytest.approx(math.exp(-step / time_constant), rel=1e-9)
    coarse = ExponentialDecay(rate=0.5, every=10)
    assert coarse(10) == 0.5
    assert coarse(15) == pytest.approx(0.5**1.5)
    assert coarse.time_constant == pytest.approx(10 / math.log(2))


def test_a_decay_that_does_not_decay_lasts_for_ever():
    assert ExponentialDecay(rate=1.0).time_constant == math.inf
    assert ExponentialDecay(rate=1.0)(10**6) == 1


def test_stairs_meet_the_smooth_decay_at_every_step_down():
    smooth, stairs = (ExponentialDecay(0.7, every=5, staircase=s, warmup=3) for s in (False, True))
    for step in range(2, 60):
        assert stairs(step) >= smooth(step) * (1 - 1e-12)
        if (step - 2) % 5 == 0:
            assert stairs(step) == pytest.approx(smooth(step))
    assert len({stairs(step) for step in range(2, 7)}) == 1


# --- what all of them share -----------------------------------------------------------------------


def shapes(warmup, steps):
    """Every schedule of a peak of 1 with this warm-up."""
    made = [
        Constant(warmup),
        ExponentialDecay(0.9, every=3, warmup=warmup),
        ExponentialDecay(0.5, every=9, staircase=True, warmup=warmup),
        WarmupCosine(warmup, steps),
        WarmupCosine(warmup, steps, final=0.2),
        WarmupLinear(warmup, steps),
        WarmupStableDecay(warmup, steps, decay=steps - warmup),
        WarmupStableDecay(warmup, steps, decay=1),
    ]
    return [*made, InverseSquareRoot(warmup)] if warmup else made


@given(warmup=st.integers(0, 40), rest=st.integers(1, 60))
def test_all_rise_alike_peak_at_one_and_never_rise_again(warmup, rest):
    steps = warmup + rest
    for schedule in shapes(warmup, steps):
        values = [schedule(step) for step in range(steps)]
        rise = [(step + 1) / warmup for step in range(warmup)]
        assert values[:warmup] == pytest.approx(rise), schedule
        assert values[max(warmup - 1, 0)] == pytest.approx(1), schedule
        fall = values[max(warmup - 1, 0) :]
        assert all(b <= a + 1e-12 for a, b in itertools.pairwise(fall)), schedule
        assert min(values) > 0, f"a step of {schedule} would be wasted"


@given(warmup=st.integers(1, 50))
def test_no_schedule_jumps_where_the_warmup_ends(warmup):
    steps = 1000 * warmup  # so long that every fall is slow
    slow = [
        Constant(warmup),
        ExponentialDecay(0.5, every=1000 * warmup, warmup=warmup),
        InverseSquareRoot(warmup),
        WarmupCosine(warmup, steps),
        WarmupLinear(warmup, steps),
        WarmupStableDecay(warmup, steps, decay=500 * warmup),
    ]
    for schedule in slow:
        before, after = schedule(warmup - 1), schedule(warmup)
        assert before == 1
        assert abs(after - before) <= 1 / (warmup + 1), schedule


@pytest.mark.parametrize("final", [0.0, 0.3])
def test_falls_end_at_their_final_value_and_stay_there(final):
    for schedule in (
        WarmupCosine(3, 20, final),
        WarmupLinear(3, 20, final),
        WarmupStableDecay(3, 20, 8, final),
    ):
        assert schedule(20) == pytest.approx(final, abs=1e-15)
        assert schedule(500) == schedule(20)
        assert schedule(19) > final


def test_the_plateau_ends_where_the_decay_begins():
    schedule = WarmupStableDecay(warmup=4, steps=30, decay=10)
    assert [schedule(step) for step in range(3, 21)] == [1.0] * 18
    assert schedule(21) == pytest.approx(0.9)
    assert schedule(29) == pytest.approx(0.1)


def test_the_middle_of_a_cosine_is_half_way():
    schedule = WarmupCosine(warmup=1, steps=20, final=0.5)
    assert schedule(10) == pytest.approx(0.75)
    assert WarmupLinear(warmup=1, steps=20)(5) == pytest.approx(0.75)


def test_schedules_are_values():
    for schedule in [*shapes(3, 20), Noam(64, 10)]:
        copy = pickle.loads(pickle.dumps(schedule))
        assert copy == schedule
        assert hash(copy) == hash(schedule)
        assert copy(7) == schedule(7)
        assert "warmup=" in repr(schedule), "a record can say what was used"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Constant(-1), "warmup .* at least 0, got -1"),
        (lambda: Constant(1.5), "warmup .* got 1.5"),
        (lambda: Constant(True), "warmup .* got True"),
        (lambda: InverseSquareRoot(0), "warmup .* at least 1, got 0"),
        (lambda: Noam(0, 10), "d_model .* got 0"),
        (lambda: Noam(64, 0), "warmup .* got 0"),
        (lambda: ExponentialDecay(0.0), "rate .* got 0.0"),
        (lambda: ExponentialDecay(1.1), "rate .* got 1.1"),
        (lambda: ExponentialDecay(0.5, every=0), "every .* got 0"),
        (lambda: ExponentialDecay.lasting(0), "time_constant .* got 0"),
        (lambda: WarmupCosine(5, 0), "steps .* got 0"),
        (lambda: WarmupCosine(11, 10), "warm-up of 11 steps .* steps=10"),
        (lambda: WarmupLinear(1, 10, final=1.5), "between 0 and 1, got 1.5"),
        (lambda: WarmupStableDecay(6, 10, decay=5), r"6 \+ 5 steps, more than steps=10"),
        (lambda: WarmupStableDecay(6, 10, decay=0), "decay .* got 0"),
        (lambda: WarmupStableRoot(6, 10, decay=5), r"6 \+ 5 steps, more than steps=10"),
        (lambda: Constant()(-1), "counted from 0, got step -1"),
        (lambda: WarmupCosine(0, 5)(-1), "counted from 0, got step -1"),
        (lambda: Noam(4, 2)(-1), "counted from 0, got step -1"),
    ],
)
def test_impossible_settings_are_refused(unhooked, call, message):
    with pytest.raises(ValueError, match=message):
        call()
