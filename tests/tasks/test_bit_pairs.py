"""Pairs of bits: the answers are exclusive-ors, and no linear map of the bits does better than guessing."""

import math

import numpy as np
import pytest
import torch
from measured_transformer.tasks.bit_pairs import BitPairs
from measured_transformer.tasks.task import Task
from torch.nn import functional as F


def test_the_answer_is_the_exclusive_or_of_each_pair_written_out():
    task = BitPairs(bits=6)
    for token, answer in enumerate(task.answers().tolist()):
        written = f"{token:06b}"[::-1]
        pairs = [written[i] != written[i + 1] for i in (0, 2, 4)]
        assert answer == sum(2**i for i, different in enumerate(pairs) if different)
        assert task.signs()[token].tolist() == [1.0 if b == "1" else -1.0 for b in written]


def test_a_batch_is_answered_at_each_position():
    task = BitPairs(bits=4, length=5)
    assert isinstance(task, Task)
    batch = task.batch(torch.Generator().manual_seed(1), 40)
    assert torch.equal(batch.targets, task.answers()[batch.inputs])
    assert batch.scored.all()
    assert batch.inputs.shape == (40, 5)
    assert task.batch(torch.Generator().manual_seed(1), 3, length=2).inputs.shape == (3, 2)
    assert batch.inputs.unique().tolist() == list(range(16))


def test_no_linear_map_of_the_bits_beats_its_loss_and_one_of_products_does():
    task = BitPairs(bits=4)
    signs, answers = task.signs().double(), task.answers()

    def fitted(features):
        weights = torch.zeros(features.shape[1] + 1, 4, dtype=torch.float64, requires_grad=True)
        torch.manual_seed(0)
        torch.nn.init.normal_(weights)
        columns = torch.cat([features, torch.ones(16, 1, dtype=torch.float64)], dim=1)
        steps = torch.optim.LBFGS([weights], max_iter=200, line_search_fn="strong_wolfe")

        def loss():
            steps.zero_grad()
            value = F.cross_entropy(columns @ weights, answers)
            value.backward()
            return value

        steps.step(loss)
        return float(loss())

    assert fitted(signs) == pytest.approx(task.linear_loss(), abs=1e-6)
    assert task.linear_loss() == pytest.approx(math.log(4))
    assert fitted(signs[:, 0::2] * signs[:, 1::2]) < 0.01


def test_single_bits_and_answers_are_independent():
    task = BitPairs(bits=6)
    centred = task.signs().numpy()
    for answer in range(8):
        assert np.allclose(centred[(task.answers() == answer).numpy()].mean(0), 0)


@pytest.mark.parametrize(
    ("sizes", "words"), [({"bits": 5}, "even"), ({"bits": 0}, "bits"), ({"length": 0}, "length")]
)
def test_impossible_sizes_are_refused(sizes, words):
    with pytest.raises(ValueError, match=words):
        BitPairs(**sizes)
