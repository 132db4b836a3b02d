"""Running parity, by counting."""

import torch
from measured_transformer.tasks.running_parity import RunningParity


def test_answers_are_parities_of_all_bits_so_far():
    batch = RunningParity(length=9).batch(torch.Generator().manual_seed(3), 20)
    for bits, answers in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        assert answers == [sum(bits[: i + 1]) % 2 for i in range(9)]
    assert batch.scored.all()


def test_another_length_can_be_asked_for():
    assert RunningParity().batch(torch.Generator(), 2, length=50).inputs.shape == (2, 50)
