"""People: what follows follows, backwards is backwards, and training is not asked about those held out."""

import pytest
import torch
from measured_transformer.tasks.people import DERIVED, People

TASK = People(people=20, relations=2, seed=3)


def rows(question, chosen=None):
    batch = TASK.ask(question, chosen)
    return batch.inputs.tolist(), batch.targets.tolist(), batch.scored.tolist()


def test_derived_answers_follow_from_the_facts():
    world = TASK.world()
    city = {tuple(i[:2]): t[2] for i, t, _ in zip(*rows("city"), strict=True)}
    country = {i[0]: t[1] for i, t, _ in zip(*rows("place"), strict=True)}
    badge = {t[2]: tuple(i[:2]) for i, t, _ in zip(*rows("badge"), strict=True)}
    assert len(city) == len(badge) == 20, "no two people have both names or the badge in common"
    for i, t, s in zip(*rows("chain"), strict=True):
        assert (t[2], t[4]) == (city[tuple(i[:2])], country[city[tuple(i[:2])]])
        assert s == [False, False, True, False, True]
        assert i[3] == t[2], "the first step is written down"
    for i, t, s in zip(*rows("country"), strict=True):
        assert t[2] == country[city[tuple(i[:2])]]
        assert s == [False, False, True, False, False]
    for i, t, s in zip(*rows("holder"), strict=True):
        assert badge[i[0]] == (t[1], t[2]) == (i[2], t[2])
        assert s == [False, True, True, False, False]
    assert int(world.held_out.sum()) == 5


def test_plain_facts_come_relation_by_relation():
    inputs, targets, _ = rows("plain")
    assert [row[2] for row in inputs] == [TASK.relation] * 20 + [TASK.relation + 1] * 20
    plain = TASK.world().plain
    assert [row[2] - TASK.object for row in targets] == plain.T.flatten().tolist()


def test_training_leaves_out_the_derived_questions_of_the_people_held_out():
    training, held_out = TASK.training(), TASK.world().held_out
    asked = set(map(tuple, training.inputs.tolist()))
    for question in DERIVED:
        for row, out in zip(TASK.ask(question).inputs.tolist(), held_out.tolist(), strict=True):
            assert (tuple(row) in asked) != out
    drawn = TASK.batch(torch.Generator().manual_seed(0), 500)
    assert set(map(tuple, drawn.inputs.tolist())) <= asked
    assert len(training.inputs) == 20 * 4 + 16 + 15 * 3


def test_each_kind_of_token_has_numbers_of_its_own():
    inputs, targets, scored = (torch.tensor(each) for each in rows("badge"))
    assert inputs[:, 0].min() >= TASK.first
    assert inputs[:, 0].max() < TASK.last
    assert inputs[:, 1].max() < TASK.relation
    assert (targets[scored] >= TASK.badges).all()
    assert TASK.vocab == TASK.badges + 20


def test_what_cannot_be_is_refused(unhooked):
    with pytest.raises(ValueError, match="at most 256 people, got 300"):
        People(people=300)
    with pytest.raises(ValueError, match="left_out must lie between 0 and 1"):
        People(left_out=1.5)
    with pytest.raises(ValueError, match="question must be one of"):
        TASK.ask("why")
    with pytest.raises(ValueError, match="five positions"):
        TASK.batch(torch.Generator(), 2, length=4)
