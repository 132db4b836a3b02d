"""Recall over gaps: where pairs, fillers and questions stand, and that answers belong to their keys."""

import pytest
import torch
from measured_transformer.tasks.gap_recall import GapRecall


def drawn(task: GapRecall, size: int = 200, seed: int = 0):
    return task.batch(torch.Generator().manual_seed(seed), size)


@pytest.mark.parametrize("fillers", ["one", "words"])
def test_every_answer_is_the_value_of_its_key(fillers):
    task = GapRecall(gaps=(2, 5), fillers=fillers)
    batch = drawn(task)
    seen = set()
    for row, target, scored, gaps in zip(
        batch.inputs, batch.targets, batch.scored, batch.gold["gap"], strict=True
    ):
        (gap,) = set(gaps[scored].tolist())
        start = 5 - gap
        told = dict(divmod(int(token) - 13, 6) for token in row[start : start + 3])
        assert len(told) == 3
        assert [told[int(key)] + 6 for key in row[scored]] == target[scored].tolist()
        rest = torch.cat((row[:start], row[start + 3 : 8]))
        assert (rest == 12).all() if fillers == "one" else (rest < 12).all()
        seen.add(gap)
    assert seen == {2, 5}
    assert batch.scored.sum(1).tolist() == [3] * 200


def test_fillers_are_keys_and_values_alike():
    rows = drawn(GapRecall(fillers="words"), 400).inputs[:, 4:6]
    assert set(rows.flatten().tolist()) >= set(range(12))


def test_what_does_not_fit_is_refused(unhooked):
    for call, message in (
        (lambda: GapRecall(gaps=()), "at least one gap"),
        (lambda: GapRecall(gaps=(0,)), "positive whole number"),
        (lambda: GapRecall(fillers="none"), "one, words"),
        (lambda: GapRecall(pairs=9), "as many as keys"),
        (lambda: GapRecall().batch(torch.Generator(), 2, length=5), "got 5"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
