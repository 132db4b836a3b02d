"""Chains, losses over windows, choices and the kinds of models, by hand and against one another."""

import math

import numpy as np
import pytest
import torch
import xarray
from measured_book.evidence.results import load_results
from measured_book.rooms.transformer_or_recurrent import measure
from measured_book.rooms.transformer_or_recurrent.measure import (
    BATCH,
    EPOCH,
    GAP_TASK,
    KINDS,
    MEMORIES,
    OPEN,
    PARTS,
    READERS,
    TEXT,
    body_weights,
    carried,
    cost,
    first_recurrent,
    half_cost,
    influence_of,
    kind,
    longest_chain,
    right_over,
    rounds,
    sheet_weights,
    steps_to,
)
from measured_book.rooms.transformer_or_recurrent.reading import (
    chosen_loss,
    smallest_of,
)
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.tasks.word_text import word_tokens
from measured_transformer.training.loop import evaluate, make_model, train
from measured_transformer.variants.recurrent import LinearRecurrence

RESULTS = load_results("transformer_or_recurrent")


def made(name: str, vocab: int = TEXT.vocab):
    config, options = kind(name, vocab)
    model = make_model(config, causal=True, seed=0)
    if "prepare" in options:
        options["prepare"](model)
    return model.eval()


@pytest.mark.parametrize("name", sorted({*KINDS, *READERS, *MEMORIES}))
def test_all_kinds_have_bodies_of_one_size(name: str) -> None:
    reference = body_weights(made("Transformer"))
    assert body_weights(made(name)) == pytest.approx(reference, rel=0.01)


def test_an_open_gate_leaves_a_third_over_a_sequence() -> None:
    left = (1 / (1 + math.exp(-OPEN))) ** (GAP_TASK.length + 1)
    assert left == pytest.approx(1 / 3, abs=0.05)


def test_a_hybrid_has_one_block_of_each() -> None:
    model = Decoder(Config(vocab=5, positions="none"))
    second = model.blocks[1]
    first_recurrent(model)
    kinds = [isinstance(block.attention, LinearRecurrence) for block in model.blocks]
    assert kinds == [True, False]
    assert model.blocks[1] is second


def test_an_epoch_is_about_as_many_words_as_the_text_has() -> None:
    assert pytest.approx(len(TEXT.tokens()), rel=0.015) == EPOCH * BATCH * 32


def test_chains_by_hand_and_in_models() -> None:
    x = torch.ones(3, requires_grad=True)
    y = x * 2
    assert longest_chain(y) == 1
    assert longest_chain((y.exp() + y).sum()) == 4
    lengths = {}
    for n in (8, 16):
        tokens = torch.zeros(1, n, dtype=torch.long)
        for name in ("Transformer", "LSTM", "linear"):
            lengths[name, n] = longest_chain(made(name, 5)(tokens).sum())
    assert lengths["Transformer", 8] == lengths["Transformer", 16]
    assert lengths["LSTM", 16] - lengths["LSTM", 8] >= 8 * 5
    assert 0 < lengths["linear", 16] - lengths["linear", 8] < 12
    assert [rounds("linear", n) for n in (1, 2, 3, 1000)] == [1, 1, 2, 10]


@pytest.mark.parametrize("part", PARTS[1:])
def test_the_cost_of_a_part_is_that_of_its_windows(part) -> None:
    model = made("sheet")
    whole = word_tokens(part, TEXT.vocab)
    windows = whole[: 32 * 4 + 1]
    with torch.no_grad():
        logits = model(windows[:-1].view(4, 32))
        wanted = torch.nn.functional.cross_entropy(logits.flatten(0, 1), windows[1:]).item()
    short = pytest.MonkeyPatch()
    short.setattr(measure.WordText, "tokens", lambda _: windows)
    try:
        assert cost(model, part) == pytest.approx(wanted, rel=1e-5)
        again = cost(model, part, fresh=32)
        overlapping = cost(model, part, fresh=8)
    finally:
        short.undo()
    assert again == pytest.approx(wanted, rel=1e-5)
    assert overlapping != pytest.approx(wanted, rel=1e-5)


def test_a_state_that_is_carried_on_reads_the_text_in_one_piece(monkeypatch) -> None:
    model = made("LSTM")
    whole = word_tokens("test", TEXT.vocab)[:65]
    monkeypatch.setattr(measure.WordText, "tokens", lambda _: whole)
    with torch.no_grad():
        wanted = torch.nn.functional.cross_entropy(model(whole[None, :-1])[0], whole[1:]).item()
    assert carried(model, "test") == pytest.approx(wanted, rel=1e-5)


def test_the_expected_best_is_the_mean_of_smallest() -> None:
    rng = np.random.default_rng(0)
    losses = rng.normal(size=8)
    drawn = [rng.choice(losses, 3, replace=False).min() for _ in range(20000)]
    assert smallest_of(losses, 3) == pytest.approx(np.mean(drawn), abs=0.02)
    assert smallest_of(losses, 8) == losses.min()


def test_halves_of_windows_have_the_mean_of_all(monkeypatch) -> None:
    model = made("sheet")
    windows = word_tokens("validation", TEXT.vocab)[: 32 * 4 + 1]
    monkeypatch.setattr(measure.WordText, "tokens", lambda _: windows)
    halves = [half_cost(model, half) for half in ("even", "odd")]
    assert halves[0] != pytest.approx(halves[1], rel=1e-4)
    assert np.mean(halves) == pytest.approx(cost(model, "validation"), rel=1e-5)


def test_a_choice_flatters_nobody_where_both_halves_agree() -> None:
    values = np.random.default_rng(1).normal(size=(2, 4, 2, 3, 6))
    dims = ("half", "seed", "heads", "layers", "rate")
    coords = {"half": ["even", "odd"], "seed": range(4)}
    field = xarray.Dataset({"halves": xarray.DataArray(values, dims=dims, coords=coords)})
    on_own, on_other = (chosen_loss(field, read=read) for read in ("own", "other"))
    flat = values.reshape(2, 4, -1)
    np.testing.assert_allclose(on_own, (flat.min(2) - flat.mean(2)).mean(0))
    assert (on_other > on_own).all()
    field.halves[1] = field.halves[0].values
    np.testing.assert_allclose(chosen_loss(field, read="other"), chosen_loss(field, read="own"))


def test_pytorchs_layers_by_formula() -> None:
    found = sheet_weights()
    d = 200
    assert found["body"][0] == 2 * (4 * d * d + 4 * d + 2 * d * d + 2 * d + 4 * d)
    assert found["body"][1] == 2 * (8 * d * d + 8 * d)
    assert found["all"][0] - found["body"][0] == 2 * 200 * 30000 + 30000


def test_right_answers_over_gaps_average_to_those_of_all() -> None:
    config, options = kind("linear", GAP_TASK.vocab)
    run = train(config, GAP_TASK, steps=5, learning_rate=1e-2, seed=0, **options)
    found = [right_over(run.model, gap, 3) for gap in (4, 16, 64)]
    whole = evaluate(run.model, GAP_TASK, seed=3, size=768).accuracy
    assert np.mean(found) == pytest.approx(whole, abs=0.03)


def test_steps_to_a_level_are_those_after_which_it_stays() -> None:
    task = GAP_TASK
    config, _ = kind("Transformer", task.vocab)
    run = train(config, task, steps=4, learning_rate=1e-3, seed=0, batch_size=2, evaluate_every=1)
    for level, wanted in ((0.0, 1.0), (2.0, 4.0)):
        assert steps_to(run, level) == wanted


def test_influence_is_a_length_for_each_distance() -> None:
    found = influence_of(made("LSTM", 20), 0)
    assert len(found) == 7
    assert found[0] > 100 * found[-1] > 0


def test_what_was_measured_has_headroom() -> None:
    far = RESULTS["far"]
    solved = far.accuracy.sel(reader="Transformer", gap=64)
    assert float(solved.min()) > 0.8
    assert float(RESULTS["recall"].accuracy.sel(memory="Transformer").min()) > 0.8
