"""A table of tokens made of bits: the same for ever, balanced, and mirrored where that is asked for."""

import pytest
import torch
from measured_transformer.tasks.bit_table import BitTable


def drawn(task, **more):
    return task.batch(torch.Generator().manual_seed(3), 20, **more)


def test_answers_are_those_of_the_table_here_or_mirrored():
    here, there = BitTable(bits=4), BitTable(bits=4, mirrored=True)
    a, b = drawn(here), drawn(there)
    assert torch.equal(a.inputs, b.inputs)
    for row in range(20):
        for i in range(8):
            assert a.targets[row, i] == here.entries()[a.inputs[row, i]]
            assert b.targets[row, i] == here.entries()[a.inputs[row, 7 - i]]
    assert a.scored.all()
    assert drawn(here, length=3).inputs.shape == (20, 3)


def test_every_answer_is_that_to_as_many_tokens():
    assert torch.bincount(BitTable(bits=7, answers=8).entries()).tolist() == [16] * 8
    assert torch.equal(BitTable().entries(), BitTable(length=3, mirrored=True).entries())
    assert not torch.equal(BitTable().entries(), BitTable(table_seed=1).entries())
    copied = BitTable(bits=3, table="identity")
    assert copied.entries().tolist() == list(range(8))
    assert torch.equal(drawn(copied).targets, drawn(copied).inputs)


def test_the_table_is_no_linear_map_of_the_bits():
    task = BitTable()
    signs = ((torch.arange(128)[:, None] >> torch.arange(7)) & 1) * 2.0 - 1
    columns = torch.cat([signs, torch.ones(128, 1)], dim=1).double()
    wanted = torch.nn.functional.one_hot(task.entries(), 8).double()
    fit = columns @ torch.linalg.lstsq(columns, wanted).solution
    assert float((fit.argmax(1) == task.entries()).double().mean()) < 0.5


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"bits": 0}, "bits must be"),
        ({"bits": 2, "answers": 5}, "at most as many answers"),
        ({"table": "sorted"}, "table must be one of"),
    ],
)
def test_what_makes_no_sense_is_refused(wrong, message, unhooked):
    with pytest.raises(ValueError, match=message):
        BitTable(**wrong)
