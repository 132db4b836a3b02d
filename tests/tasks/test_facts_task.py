"""A table of facts: drawn once, all of it seen, each pair asked once before any is asked twice."""

import math
from collections import Counter

import pytest
import torch
from measured_transformer.tasks.facts import Facts

TASK = Facts(count=30, subjects=9, relations=5, objects=4, seed=3)


def rows(batch) -> list[tuple[int, ...]]:
    return [
        (*pair, answer)
        for pair, answer in zip(batch.inputs.tolist(), batch.targets[:, 1].tolist(), strict=True)
    ]


def test_every_fact_has_a_pair_of_its_own_and_tokens_of_its_kinds():
    table = TASK.table()
    assert len({(s, r) for s, r, _ in table.tolist()}) == 30
    assert table[:, 0].min() >= 0
    assert table[:, 0].max() < 9
    assert table[:, 1].min() >= 9
    assert table[:, 1].max() < 14
    assert table[:, 2].min() >= 14
    assert table[:, 2].max() < 18 == TASK.vocab
    whole = Facts(count=45, subjects=9, relations=5, objects=4, seed=3).table()
    assert len({(s, r) for s, r, _ in whole.tolist()}) == 45
    assert torch.equal(whole[:30], table), "a smaller table is the beginning of a larger one"
    other = Facts(count=30, subjects=9, relations=5, objects=4, seed=4).table()
    assert not torch.equal(other, table)


def test_the_table_cannot_be_changed_from_outside():
    TASK.table().zero_()
    TASK.facts().inputs.zero_()
    assert TASK.table()[:, 1].min() >= 9


def test_a_batch_holds_each_fact_once_before_one_twice():
    table = [tuple(row) for row in TASK.table().tolist()]
    generator = torch.Generator().manual_seed(0)
    whole = TASK.batch(generator, 30)
    assert sorted(rows(whole)) == sorted(table)
    assert [table[i] for i in whole.gold["fact"].tolist()] == rows(whole)
    counts = Counter(rows(TASK.batch(generator, 70)))
    assert set(counts.values()) == {2, 3}
    assert len(set(rows(TASK.batch(generator, 12)))) == 12
    assert rows(TASK.facts()) == table
    assert torch.equal(whole.scored, torch.tensor([[False, True]]).expand(30, 2))
    assert torch.equal(whole.targets[:, 0], whole.inputs[:, 1])


def test_objects_are_drawn_evenly_and_know_nothing_of_the_pair():
    table = Facts(count=4000, subjects=80, relations=50, objects=5, seed=0).table()
    counts = torch.bincount(table[:, 2] - 130)
    assert ((counts - 800).abs() < 4 * math.sqrt(800)).all()
    subject = torch.bincount(5 * table[:, 0] + table[:, 2] - 130, minlength=400).double()
    expected = torch.bincount(table[:, 0]).double().repeat_interleave(5) / 5
    chi = ((subject - expected).square() / expected).sum()
    assert abs(chi - 320) < 4 * math.sqrt(640)


def test_blind_loss_is_the_entropy_of_the_objects():
    shares = torch.bincount(TASK.table()[:, 2] - 14).double() / 30
    assert TASK.blind_loss() == pytest.approx(
        torch.distributions.Categorical(shares).entropy().item()
    )
    assert Facts(count=1).blind_loss() == 0


def test_what_makes_no_table_is_refused():
    with pytest.raises(ValueError, match="make 6 pairs, got count=7"):
        Facts(count=7, subjects=3, relations=2)
    with pytest.raises(ValueError, match="objects must be a positive whole number"):
        Facts(count=1, objects=0)
    with pytest.raises(ValueError, match="got length=3"):
        TASK.batch(torch.Generator(), 2, length=3)
