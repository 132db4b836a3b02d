"""Seen lately: the answers, by looking back one token at a time."""

from __future__ import annotations

import pytest
from measured_transformer.tasks.seen_lately import SeenLately
from measured_transformer.training.seeding import make_generator


@pytest.mark.parametrize("length", [5, 40])
def test_answers_are_what_looking_back_finds(length: int) -> None:
    task = SeenLately(vocab=9, length=12, reach=4)
    batch = task.batch(make_generator(0, "evaluation"), 20, length=length)
    for row, answers in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        assert row[0] == 0
        assert 0 not in row[1:]
        assert answers == [int(row[t] in row[max(0, t - 4) : t]) for t in range(length)]
    assert batch.scored[:, 1:].all()
    assert not batch.scored[:, 0].any()


def test_how_often_a_token_is_new() -> None:
    task = SeenLately(vocab=13, length=400, reach=6)
    batch = task.batch(make_generator(1, "evaluation"), 100)
    new = 1 - batch.targets[:, 6 + 1 :].double().mean().item()
    assert new == pytest.approx(task.new_share(), abs=0.01)


def test_sizes_are_checked() -> None:
    with pytest.raises(ValueError, match="two tokens besides the start"):
        SeenLately(vocab=2)
    with pytest.raises(ValueError, match="reach"):
        SeenLately(reach=0)
