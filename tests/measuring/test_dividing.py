"""What an accelerator trains as one stack, in which order, and about how long that takes."""

from typing import Any

import pytest
from measured_book.measuring import dividing
from measured_book.measuring.dividing import (
    ALONE,
    STACKED,
    Stacks,
    can_stack,
    device_processes,
    parts_of,
    stack_key,
    took,
)
from measured_book.measuring.jobs import job
from measured_transformer.models.config import Config
from measured_transformer.tasks.lag import Lag
from measured_transformer.training.jobs import Job


def one(width: int = 16, *, seed: int = 0, blocks: int = 2, steps: int = 100, **more: Any) -> Job:
    dropout = float(more.pop("dropout", 0.0))
    config = Config(vocab=8, d_model=width, n_layers=blocks, positions="rotary", dropout=dropout)
    return job(config, Lag(vocab=8, lag=3), seed, **{"learning_rate": 0.01, "steps": steps, **more})


def first(model: Any) -> None:
    """One way to prepare a model."""


def second(model: Any) -> None:
    """Another one."""


def test_runs_that_differ_in_their_seeds_alone_are_alike():
    assert stack_key(one()) == stack_key(one(seed=10))
    others = [one(width=8), one(steps=7), one(learning_rate=0.1), one(dropout=0.1)]
    prepared = [one(prepare=first), one(prepare=second)]
    assert len({stack_key(each) for each in [one(), *others, *prepared]}) == 7


def test_functions_of_one_name_are_not_alike():
    def made(number: int) -> Any:
        def prepare(model: Any) -> None:
            assert number

        return prepare

    assert stack_key(one(prepare=made(1))) != stack_key(one(prepare=made(2)))


def test_a_stack_takes_little_more_than_one_and_what_cannot_be_stacked_takes_each_its_time():
    assert took(one(), 60).seconds < 2 * took(one(), 2).seconds
    assert took(one(), 1).seconds < took(one(), 2).seconds  # one is no stack
    alone = one(dropout=0.1)
    assert not can_stack(alone)
    assert parts_of(alone, 3) == [1, 1, 1]
    assert took(one(), 5).processor == pytest.approx(100 * (STACKED[0] + 2 * STACKED[1]))
    assert took(alone, 1).processor == pytest.approx(100 * (ALONE[0] + 2 * ALONE[1]))


def test_small_models_leave_the_device_idle_and_large_ones_do_not():
    small, large = took(one(), 10), took(one(width=512), 10)
    assert small.products < small.processor / 4
    assert large.products > large.processor
    assert small.processor == large.processor


def test_more_than_a_stack_may_have_are_several_of_about_one_size():
    assert parts_of(one(), 64) == [64]
    assert parts_of(one(), 65) == [33, 32]
    assert parts_of(one(), 130) == [44, 43, 43]
    assert parts_of(one(), 0) == []


# What waits ---------------------------------------------------------------------------------------


def taken(stacks: Stacks[str]) -> list[list[str]]:
    found = []
    while stacks:
        found.append(stacks.take())
    assert stacks.take() == []
    return found


def test_the_longest_stack_comes_first_and_before_it_what_others_wait_for():
    stacks = Stacks[str]()
    for seed in (0, 10):
        stacks.put(one(seed=seed, steps=50), f"short {seed}")
        stacks.put(one(seed=seed, steps=500), f"long {seed}")
        stacks.put(one(seed=seed, steps=5), f"search {seed}", first=True)
    stacks.put(one(blocks=3, dropout=0.1, steps=400), "alone")
    assert taken(stacks) == [
        ["search 0", "search 10"],
        ["long 0", "long 10"],
        ["alone"],
        ["short 0", "short 10"],
    ]


def test_large_models_are_longer_the_more_of_them_there_are():
    stacks = Stacks[str]()
    for seed in range(30):
        stacks.put(one(seed=seed, width=512), "wide")
    for seed in range(10):
        stacks.put(one(seed=seed, steps=200), "narrow")
    assert took(one(width=512), 1).seconds < took(one(steps=200), 10).seconds
    assert [each[0] for each in taken(stacks)] == ["wide", "narrow"]


def test_what_is_too_many_or_cannot_be_stacked_is_several():
    stacks = Stacks[int]()
    for seed in range(70):
        stacks.put(one(seed=seed), seed)
    for seed in (0, 10):
        stacks.put(one(seed=seed, dropout=0.1), seed)
    sizes = sorted(len(each) for each in taken(stacks))
    assert sizes == [1, 1, 35, 35]


def test_what_comes_later_joins_what_still_waits():
    stacks = Stacks[int]()
    stacks.put(one(), 1)
    assert stacks.take() == [1]
    stacks.put(one(), 2)
    stacks.put(one(steps=7), 3)
    stacks.put(one(seed=10), 4)
    assert taken(stacks) == [[2, 4], [3]]


# How many processes -------------------------------------------------------------------------------


def test_there_are_as_many_processes_as_cores_but_sixteen_at_most(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(dividing.VARIABLE, raising=False)
    assert [device_processes(cores) for cores in (0, 1, 8, 64)] == [1, 1, 8, 16]
    monkeypatch.setenv(dividing.VARIABLE, "3")
    assert [device_processes(cores) for cores in (1, 64)] == [3, 3]


@pytest.mark.parametrize("told", ["0", "-1", "many", "1.5"])
def test_no_other_words_say_how_many(monkeypatch: pytest.MonkeyPatch, told: str):
    monkeypatch.setenv(dividing.VARIABLE, told)
    with pytest.raises(ValueError, match="MEASURED_DEVICE_PROCESSES to be a positive whole number"):
        device_processes(4)
