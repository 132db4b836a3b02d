"""The planted causes are causes, the controls are controls, and choices are made on other seeds."""

import numpy as np
import pytest
import torch
from measured_book.evidence.results import load_results
from measured_book.rooms.attribution.figures import known_areas
from measured_book.rooms.attribution.measure import (
    DEPTHS,
    METHODS,
    MODELS,
    NAMES,
    TASKS,
    WithoutHead,
    config_of,
    copied,
    questions,
    scores_of,
    sublayers,
)
from measured_transformer.analysis.ablation import Component, heads, loss
from measured_transformer.internals.at import at
from measured_transformer.internals.intervene import intervene
from measured_transformer.training.loop import make_model, train
from measured_transformer.training.seeding import make_generator
from xarray import Dataset

RESULTS = load_results("attribution")


@pytest.mark.parametrize("task", TASKS)
def test_the_answer_can_be_told_from_the_relevant_tokens_alone(task) -> None:
    """Sequences with the same relevant tokens and question have the same answer."""
    asked = questions(task, 1, 3000)
    seen: dict[tuple[int, ...], set[int]] = {}
    for tokens, relevant, answer in zip(asked.tokens, asked.relevant, asked.answers, strict=True):
        key = (*tokens[relevant].tolist(), int(tokens[-1]))
        seen.setdefault(key, set()).add(int(answer))
    assert all(len(answers) == 1 for answers in seen.values())
    assert asked.relevant.sum(1).tolist() == [1 if task == "recall" else 2] * 3000
    assert not asked.relevant[:, -1].any()
    assert asked.candidates.sum(1).unique().tolist() == [asked.tokens.shape[1] - 1]


def test_a_copy_is_the_same_pair_in_another_place() -> None:
    asked = questions("recall", 2, 100)
    twice = copied(asked)
    assert twice.relevant.sum(1).tolist() == [2] * 100
    for tokens, relevant in zip(twice.tokens, twice.relevant, strict=True):
        assert len(tokens[relevant].unique()) == 1
    assert (twice.tokens != asked.tokens).sum(1).max() == 1
    assert torch.equal(twice.tokens[:, -1], asked.tokens[:, -1])


def test_every_method_scores_every_token_and_none_below_zero() -> None:
    model = make_model(config_of("two hops", 2), causal=True, seed=0)
    asked = questions("two hops", 0, 2)
    scores = scores_of(model, asked)
    assert tuple(scores) == METHODS
    for each in scores.values():
        assert each.shape == asked.tokens.shape
        assert bool((each >= 0).all())
    assert not torch.equal(scores["zero"], scores["resample"])


def test_a_head_that_is_left_out_stays_out() -> None:
    model = make_model(config_of("induction", 2), causal=True, seed=1)
    run = train(
        model.config,
        TASKS["induction"],
        steps=3,
        learning_rate=1e-2,
        seed=1,
        batch_size=4,
        prepare=WithoutHead(model, 6),
    )
    batch = TASKS["induction"].batch(make_generator(0, "parts"), 8)
    whole = loss(run.model, batch)
    with intervene(run.model, {"blocks.1.attention.mixed": at(0.0, heads=2)}):
        assert loss(run.model, batch) == whole
    with intervene(run.model, {"blocks.1.attention.mixed": at(0.0, heads=1)}):
        assert loss(run.model, batch) != whole
    assert whole != loss(model, batch)


def test_sublayers_are_each_blocks_two() -> None:
    model = make_model(config_of("recall", 4), causal=True, seed=0)
    assert len(sublayers(model)) == 8
    assert len(heads(model)) == 16
    assert sublayers(model)[0] == Component("blocks.0.attention.out")


def test_models_that_do_not_know_their_task_are_left_out() -> None:
    found = Dataset(
        {
            "accuracy": (("seed", "model"), [[1.0, 0.9], [0.99, 1.0]]),
            "area": (("seed", "model"), [[0.5, 0.0], [0.5, 1.0]]),
        },
        coords={"model": list(NAMES[:2])},
    )
    assert known_areas(found, NAMES[:2]).values.tolist() == [0.5, 0.75]


def test_names_of_models_fit_their_tasks_and_depths() -> None:
    assert len(NAMES) == len(MODELS) == sum(map(len, DEPTHS.values()))


def test_nothing_is_found_where_there_is_nothing_to_find() -> None:
    areas = RESULTS["controls"].area
    for state in ("untrained", "permuted"):
        assert np.abs(areas.sel(state=state).mean("seed") - 0.5).max() < 0.2
