"""Several tables over the same items: every answer is what its skill's table says."""

import pytest
import torch
from measured_transformer.tasks.skill_tables import SkillTables


def test_answers_are_those_of_the_skill_and_the_skill_is_not_asked():
    task = SkillTables(skills=3, items=8, answers=4, length=5)
    table = task.entries()
    batch = task.batch(torch.Generator().manual_seed(2), 50)
    assert batch.inputs.shape == (50, 5)
    assert batch.scored.tolist() == [[False, True, True, True, True]] * 50
    for row, answers in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        skill = row[0] - 8
        assert 0 <= skill < 3
        assert answers[1:] == [int(table[skill, item]) for item in row[1:]]


def test_each_table_has_every_answer_equally_often_and_tables_differ():
    table = SkillTables(skills=4, items=32, answers=16).entries()
    for row in table:
        assert torch.bincount(row).tolist() == [2] * 16
    assert len({tuple(row) for row in table.tolist()}) == 4


def test_sizes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="at most 4 answers"):
        SkillTables(items=4, answers=5)
    with pytest.raises(ValueError, match="length=1"):
        SkillTables(length=1)
    with pytest.raises(ValueError, match="length=1"):
        SkillTables().batch(torch.Generator(), 1, length=1)
    with pytest.raises(ValueError, match="skills must be"):
        SkillTables(skills=0)
