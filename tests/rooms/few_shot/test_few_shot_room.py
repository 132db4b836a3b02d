"""Rows of questions for curves over the number of examples, and what is read from them."""

from __future__ import annotations

import pytest
import torch
from measured_book.rooms.few_shot import measure as curves
from measured_book.rooms.few_shot.tasks import CHOICES, NOTHING, OTHER, RELATIONS, TASKS
from measured_book.rooms.repeats import words
from measured_book.smollm2.model import is_installed
from measured_book.smollm2.prompts import few_shot, next_logits, one_token

needs_model = pytest.mark.skipif(not is_installed(), reason="the model is not installed")
SEED = 3


@needs_model
def test_answers_are_single_tokens() -> None:
    answers = [f" {answer}" for known in TASKS.values() for answer in known.values()]
    assert one_token(answers) == answers


def test_no_pair_was_asked_before() -> None:
    before = {pair for known in words.RELATIONS.values() for pair in known.items()}
    assert not before & {pair for known in TASKS.values() for pair in known.items()}


def test_each_task_has_enough_pairs() -> None:
    for known in CHOICES.values():
        assert len(known) >= curves.LINES
    for known in RELATIONS.values():
        assert len(set(known.values())) == len(known) >= 2 * curves.LINES
    assert len(NOTHING) >= 2 * max(curves.BARE)
    words_of_tasks = {word for known in TASKS.values() for pair in known.items() for word in pair}
    assert not words_of_tasks & set(NOTHING)


@pytest.mark.parametrize("task", TASKS)
def test_every_row_asks_the_same_questions_at_other_places(task: str) -> None:
    one = curves.circle(task, SEED)
    rows = [one.row(place) for place in range(curves.ROWS)]
    assert {tuple(sorted(row)) for row in rows} == {tuple(sorted(one.pairs))}
    for line in range(curves.LINES):
        assert len({row[line] for row in rows}) == curves.ROWS


@pytest.mark.parametrize("task", TASKS)
def test_answers_of_examples_are_what_their_arm_says(task: str) -> None:
    one = curves.circle(task, SEED)
    own = dict(one.pairs)
    for arm in curves.ARMS:
        for place, prompt in enumerate(curves.rows_of(one, arm, SEED)):
            *lines, last = prompt.split("\n")
            shown = [tuple(line.split(" -> ")) for line in lines]
            assert [question for question, _ in shown] == [asked for asked, _ in one.row(place)][
                :-1
            ]
            assert last == f"{one.row(place)[-1][0]} ->"
            said = {answer for _, answer in shown}
            if arm == "right":
                assert all(own[question] == answer for question, answer in shown)
            elif arm == "random":
                assert said <= set(TASKS[task].values())
                if task in RELATIONS:
                    assert not said & set(own.values()), "no answer stands before its own question"
            else:
                assert said <= set(TASKS[OTHER[task]].values())


@needs_model
@torch.no_grad()
def test_one_pass_asks_what_prompts_of_each_length_ask() -> None:
    one = curves.circle("kind", SEED)
    rows = curves.rows_of(one, "right", SEED)[:2]
    counts = [0, 3, 16]
    together = curves.answer_logits(rows, counts)
    for place, found in enumerate(together):
        row = one.row(place)
        apart = next_logits([few_shot(row[:k], row[k][0]) for k in counts], first="end")
        torch.testing.assert_close(found, apart, atol=1e-3, rtol=1e-4)


def test_an_answer_is_ahead_of_the_options_alone() -> None:
    logits = torch.tensor([[[0.0, 2.0, 1.0, 5.0], [0.0, 1.0, 2.0, 5.0]]])
    nats, ahead = curves.judged(logits, torch.tensor([[1, 1]]), torch.tensor([1, 2]))
    assert ahead.tolist() == [[1.0, 0.0]]
    torch.testing.assert_close(nats[0, 0], logits[0, 0].logsumexp(-1) - 2.0)
