"""Probes find what is there, controls find words: checked on states and models whose content is known."""

import pytest
import torch
from measured_book.rooms.layers.measure import carrying_model
from measured_transformer.analysis.layers import states_by_depth
from measured_transformer.analysis.probing import dealt, fit_probe, probe
from measured_transformer.tasks.task import Batch


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_the_weights_are_those_of_a_gradient_descent():
    """The closed form against an optimiser that knows only what is minimised."""
    states = torch.randn(40, 3, generator=generator(), dtype=torch.float64)
    states[:, 0] = 5 + 3 * states[:, 0]
    labels = (states[:, 0] + states[:, 1] > 5).long()
    found = fit_probe(states, labels, n_labels=2, penalty=0.1)
    x = (states - states.mean(0)) / states.std(0, correction=0)
    y = torch.nn.functional.one_hot(labels).double()
    weight = torch.zeros(3, 2, dtype=torch.float64, requires_grad=True)
    bias = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([weight, bias], max_iter=200, tolerance_grad=1e-12)

    def cost():
        optimiser.zero_grad()
        value = (x @ weight + bias - y).square().sum(1).mean() + 0.1 * weight.square().sum()
        value.backward()
        return value

    optimiser.step(cost)
    torch.testing.assert_close(found.weight, weight.detach(), atol=1e-6, rtol=0)
    torch.testing.assert_close(found.bias, bias.detach(), atol=1e-6, rtol=0)


def test_several_deals_are_fitted_as_if_each_were_alone():
    states = torch.randn(30, 4, generator=generator())
    labels = torch.randint(3, (5, 30), generator=generator(1))
    together = fit_probe(states, labels, n_labels=3).answers(states)
    for row, own in zip(labels, together, strict=True):
        assert torch.equal(fit_probe(states, row, n_labels=3).answers(states), own)


def test_an_entry_that_never_changes_does_no_harm():
    states = torch.randn(30, 2, generator=generator())
    labels = (states[:, 0] > 0).long()
    padded = torch.cat((states, torch.full((30, 1), 7.0)), 1)
    plain = fit_probe(states, labels, n_labels=2).answers(states)
    assert torch.equal(fit_probe(padded, labels, n_labels=2).answers(padded), plain)


def test_deals_keep_words_together_and_the_number_of_words_a_label():
    types = torch.randint(12, (300,), generator=generator())
    labels = (types % 3 == 0).long()
    deals = dealt(labels, types, generator(2), deals=50)
    for deal in deals:
        by_type = [deal[types == t].unique() for t in range(12)]
        assert all(len(own) == 1 for own in by_type)
        assert sum(int(own) for own in by_type) == 4
    assert len(deals.unique(dim=0)) > 30
    with pytest.raises(ValueError, match="several"):
        dealt(torch.tensor([0, 1]), torch.tensor([5, 5]), generator())


def probed(what: str, n: int = 400):
    """Probes for the class of the word one place back, in a model that carries the word or its class."""
    model = carrying_model(what, vocab=16, length=6)
    tokens = torch.randint(16, (n, 6), generator=generator(4))
    batch = Batch(tokens, tokens, torch.ones_like(tokens, dtype=torch.bool))
    states = states_by_depth(model, batch)[:, :, 3]
    types = tokens[:, 2]
    return probe(states, types % 2, types, torch.arange(n) < n // 2, generator(5), n_labels=2)


def test_what_is_there_only_after_the_second_block_is_found_only_there():
    found = probed("class")
    assert found.accuracy[:2].max() < 0.62
    assert found.accuracy[2] == 1
    assert found.selectivity[2] > 0.35


def test_a_word_that_was_only_carried_is_as_good_for_the_control():
    found = probed("word")
    assert found.accuracy[2] == found.control[2] == 1
    assert found.selectivity[2] == 0
    assert found.accuracy[:2].max() < 0.62


def test_scores_are_those_of_examples_left_out():
    """Labels without any relation to the states: by heart on what was fitted, chance on the rest."""
    states = torch.randn(1, 120, 50, generator=generator())
    types = torch.arange(120)
    labels = torch.randint(2, (120,), generator=generator(1))
    found = probe(states, labels, types, types < 60, generator(2), n_labels=2)
    assert 0.3 < found.accuracy[0] < 0.7


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": torch.tensor([0, 2, 1])}, "label from 0 to 1"),
        ({"penalty": 0.0}, "positive"),
    ],
)
def test_what_does_not_fit_is_said(change, message):
    given = {"labels": torch.tensor([0, 1, 1]), "penalty": 0.1} | change
    with pytest.raises(ValueError, match=message):
        fit_probe(torch.zeros(3, 2), given["labels"], n_labels=2, penalty=given["penalty"])


def test_probes_need_both_halves():
    states, labels = torch.zeros(1, 3, 2), torch.tensor([0, 1, 1])
    with pytest.raises(ValueError, match="scored on"):
        probe(states, labels, torch.arange(3), torch.ones(3).bool(), generator(), n_labels=2)
