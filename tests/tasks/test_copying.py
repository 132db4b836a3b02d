"""Copying: the answer is the input, and a model without blocks can give it."""

import math

import pytest
import torch
from measured_transformer.tasks.copying import Copying


def test_each_answer_is_the_token_at_its_own_place():
    batch = Copying(vocab=7, length=5).batch(torch.Generator().manual_seed(0), 20)
    assert torch.equal(batch.inputs, batch.targets)
    assert batch.inputs is not batch.targets
    assert batch.scored.all()
    assert set(batch.inputs.flatten().tolist()) == set(range(7))
    longer = Copying(vocab=7, length=5).batch(torch.Generator().manual_seed(0), 2, length=9)
    assert longer.inputs.shape == (2, 9)


def test_who_does_not_look_has_the_loss_of_a_guess():
    assert Copying(vocab=7).blind_loss() == pytest.approx(math.log(7))


@pytest.mark.parametrize("sizes", [{"vocab": 0}, {"length": 0}, {"length": -2}])
def test_sizes_are_positive_whole_numbers(sizes):
    with pytest.raises(ValueError, match="positive whole number"):
        Copying(**sizes)
