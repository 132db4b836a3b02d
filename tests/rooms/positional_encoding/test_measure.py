"""What the chapter on positional encoding measures, against what is known by other ways."""

import math

import numpy as np
import pytest
import torch
from measured_book.evidence.results import load_results
from measured_book.measuring.measurement import measurements_of
from measured_book.measuring.state import HOLDS, standing
from measured_book.rooms.positional_encoding import measure
from measured_transformer.models.encoder import Encoder
from measured_transformer.parts.positions import sinusoidal_encoding

RESULTS = load_results("positional_encoding")
LEARNING = ("random", "learned", "sinusoidal", "count in one entry", "digits", "fastest third")


def test_every_result_is_of_this_code():
    for one in measurements_of("positional_encoding").values():
        assert standing(one).state in HOLDS, standing(one).why


@pytest.mark.parametrize("arm", LEARNING)
def test_no_tuned_learning_rate_of_an_arm_that_learns_stands_at_the_edge_of_its_grid(arm):
    rate = measure.reversal_trainings(0)[arm].settings["learning_rate"]
    assert measure.RATES[0] < rate < measure.RATES[-1]


def test_first_ideas_are_what_they_are_called():
    assert measure.first_idea("count everywhere", 3, 2).tolist() == [[0, 0], [1, 1], [2, 2]]
    assert measure.first_idea("count in one entry", 3, 2).tolist() == [[0, 0], [1, 0], [2, 0]]
    assert measure.first_idea("fraction", 3, 2).tolist() == [[0, 0], [0.5, 0], [1, 0]]
    digits = measure.first_idea("digits", 12, 5)
    assert [sum(int(bit) << i for i, bit in enumerate(row)) for row in digits] == list(range(12))
    with pytest.raises(ValueError, match="expected a known kind that fits into 2 entries"):
        measure.first_idea("digits", 12, 2)
    with pytest.raises(ValueError, match="got 'letters'"):
        measure.first_idea("letters", 12, 5)


@pytest.mark.parametrize("name", [a for a in measure.ARMS if a not in ("none", "sinusoidal")])
def test_a_table_that_is_given_is_not_trained(name):
    config, options = measure.arm(name)
    torch.manual_seed(0)
    model = Encoder(config)
    drawn = model.positions.table.detach().clone()
    if prepare := options.get("prepare"):
        prepare(model)
    table = model.positions.table
    assert table.requires_grad == (name == "learned")
    if name in measure.FAINT:
        assert torch.allclose(table, drawn * measure.FAINT[name])
    elif name in ("random", "learned"):
        assert torch.equal(table, drawn)
    else:
        assert not torch.equal(table, drawn)


def test_a_model_without_a_table_cannot_be_given_one():
    model = Encoder(measure.arm("none")[0])
    for prepare in (measure.FixedTable("digits"), measure.FaintTable(0.5)):
        with pytest.raises(ValueError, match="expected a model with learned positions, got none"):
            prepare(model)


def test_a_count_in_every_entry_changes_no_answer():
    config, options = measure.arm("count everywhere")
    torch.manual_seed(0)
    counting = Encoder(config).eval()
    options["prepare"](counting)
    tokens = torch.randint(12, (4, 12))
    with torch.no_grad():
        answers = counting(tokens)
        counting.positions.table.zero_()
        assert torch.allclose(counting(tokens), answers, atol=1e-4)
        measure.FixedTable("digits")(counting)
        assert not torch.allclose(counting(tokens), answers, atol=1e-2)


@pytest.mark.parametrize("band", measure.BANDS)
def test_the_best_guess_is_the_nearest_row(band):
    torch.manual_seed(1)
    table = sinusoidal_encoding(200, 64)
    x = table[torch.randint(200, (50,))] + torch.randn(50, 64)
    used = slice(None) if band == "all" else measure.third(64, band)
    nearest = torch.cdist(x[:, used].double(), table[:, used].double()).argmin(1)
    assert (measure.best_guess(x, table, band) == nearest).float().mean() > 0.97


def test_without_a_word_in_the_way_the_guess_is_right():
    table = sinusoidal_encoding(1000, 64, dtype=torch.float64)
    assert torch.equal(measure.best_guess(table, table, "all"), torch.arange(1000))


def test_similarity_and_turns_are_those_of_the_formula():
    tables = RESULTS["tables"]
    rates = 10000.0 ** (-np.arange(32) / 32)
    wanted = np.cos(np.outer(np.arange(100), rates)).sum(1)
    assert np.allclose(tables.similarity.values[0], wanted, atol=1e-9)
    assert np.allclose(tables.period.values[0], 2 * math.pi / rates, rtol=1e-6)


def test_controls_are_other_than_what_they_stand_beside():
    drawn = RESULTS["drawn"]
    for name in ("shuffled", "diagonal", "rates", "module", "stream"):
        assert float(drawn[name].max()) < 1e-9, name
        assert float(drawn[f"{name}_control"].min()) > 1e-3, name


def test_a_table_that_comes_round_has_equal_rows():
    table = measure.repeating(30, 8, 10)
    assert torch.allclose(table[0], table[10], atol=1e-12)
    assert not torch.allclose(table[0], table[9])
