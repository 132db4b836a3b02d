"""Probes with probabilities, and the length of a code, on states whose content is known."""

import math

import pytest
import torch
from measured_transformer.analysis.readers import accuracy, fit_reader, online_code


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def xor(size: int, seed: int = 0):
    """Two entries whose signs agree or not: nothing for a linear probe."""
    states = torch.randn(size, 2, generator=generator(seed))
    return states, (states[:, 0] * states[:, 1] > 0).long()


def test_a_hidden_layer_reads_what_a_linear_probe_cannot():
    states, labels = xor(800)
    fitted = torch.arange(800) < 500
    assert accuracy(states, labels, fitted, n_labels=2) < 0.65
    assert accuracy(states, labels, fitted, n_labels=2, hidden=32, steps=100) > 0.9


def test_a_linear_probe_reads_a_line_with_a_middle():
    labels = torch.randint(3, (300,), generator=generator())
    states = torch.cat((labels[:, None].float(), torch.randn(300, 3, generator=generator(1))), 1)
    fitted = torch.arange(300) < 150
    assert accuracy(states, labels, fitted, n_labels=3, steps=200) > 0.95


def test_probabilities_are_the_shares_where_nothing_can_be_read():
    labels = (torch.arange(100) < 30).long()
    read = fit_reader(torch.zeros(100, 2), labels, n_labels=2, steps=100)
    torch.testing.assert_close(
        read(torch.zeros(1, 2)).exp(), torch.tensor([[0.7, 0.3]], dtype=torch.float64), atol=1e-5, rtol=0
    )  # fmt: skip


def test_the_code_of_what_is_plain_is_short_and_of_noise_about_one_bit():
    labels = torch.randint(2, (2000,), generator=generator())
    states = torch.randn(2000, 2, generator=generator(1))
    plain = torch.cat((10.0 * labels[:, None], states), 1)
    assert online_code(plain, labels, n_labels=2) < 0.1
    assert 0.98 < online_code(states, labels, n_labels=2) < 1.1


def test_the_first_portion_is_sent_plainly():
    labels = torch.randint(4, (50,), generator=generator())
    states = torch.randn(50, 2, generator=generator(1))
    assert online_code(states, labels, n_labels=4, portions=(1.0,)) == pytest.approx(2)
    by_hand = 20 * math.log2(4)
    read = fit_reader(states[:20], labels[:20], n_labels=4)
    by_hand -= sum(
        float(read(states[i : i + 1])[0, int(labels[i])]) / math.log(2) for i in range(20, 50)
    )
    found = online_code(states, labels, n_labels=4, portions=(0.4, 1.0))
    assert found == pytest.approx(by_hand / 50)


@pytest.mark.parametrize("portions", [(0.5, 0.2, 1.0), (0.5, 0.9), (0.001, 1.0)])
def test_portions_must_rise_to_all(portions):
    with pytest.raises(ValueError, match="rising portions"):
        online_code(torch.zeros(20, 1), torch.zeros(20).long(), n_labels=2, portions=portions)


def test_examples_must_be_left_to_score_on():
    with pytest.raises(ValueError, match="others to be scored"):
        accuracy(torch.zeros(3, 1), torch.zeros(3).long(), torch.ones(3).bool(), n_labels=2)
    with pytest.raises(ValueError, match="label from 0 to 1"):
        fit_reader(torch.zeros(3, 1), torch.tensor([0, 1, 2]), n_labels=2)
