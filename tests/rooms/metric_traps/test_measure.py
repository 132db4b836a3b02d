"""Masks, decoding and scores of models that are known, and the arithmetic on the published table."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from measured_book.evidence.results import load_results
from measured_book.rooms.metric_traps import measure
from measured_book.rooms.metric_traps.measure import (
    ARMS,
    NOISIER,
    PLAIN,
    READINGS,
    WAYS,
    WORLD,
    Padded,
    all_scores,
    arm,
    compared,
    decoded,
    drawn_scores,
    fitted_share,
    independent_bleu,
    outputs,
    padding_reaches,
    sentences,
    simulated_bleu,
    text_scores,
    with_padding,
    written,
)
from measured_transformer.inference.generate import generate
from measured_transformer.models.config import Config
from measured_transformer.training.loop import make_model
from measured_transformer.training.losses import cross_entropy, cross_entropy_with_padding
from measured_transformer.training.seeding import make_generator

RESULTS = load_results("metric_traps")
TINY = Config(vocab=13, d_model=16, n_layers=1, n_heads=2, max_length=24, positions="learned")


def tiny_model(seed: int = 0):
    return make_model(TINY, causal=True, source=True, seed=seed).eval()


def test_arms_share_sentences_and_differ_in_masks() -> None:
    batches = {name: arm(name).batch(make_generator(1, "evaluation"), 20) for name in ARMS}
    first = batches["masked"]
    for batch in batches.values():
        assert torch.equal(batch.targets, first.targets)
        assert torch.equal(batch.source, first.source)
    assert batches["open"].source_padding_mask is None
    assert batches["open"].padding_mask is None
    assert torch.equal(batches["open"].scored, first.scored)
    assert torch.equal(batches["inverted"].source_padding_mask, ~first.source_padding_mask)
    assert batches["open, padding in the loss"].scored.all()
    assert ARMS["open, padding in the loss"] == ("open", "all")
    assert ARMS["masked, padding in the loss"] == ("masked", "all")


def test_scored_positions_are_what_the_loss_averages_over() -> None:
    batch = arm("open, padding in the loss").batch(make_generator(0, "evaluation"), 8)
    logits = torch.randn(*batch.targets.shape, 13, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(
        cross_entropy(logits, batch.targets, batch.scored),
        cross_entropy_with_padding(logits, batch.targets),
    )


@pytest.mark.parametrize("mask", ["masked", "open"])
def test_decoding_writes_what_generation_writes(mask: str) -> None:
    model, task = tiny_model(), Padded(WORLD, mask)  # type: ignore[arg-type]
    batch = task.batch(make_generator(2, "evaluation"), 12)
    rows = batch.source.tolist()
    if mask == "masked":
        rows = [[token for token in row if token != WORLD.padding] for row in rows]
    found = decoded(model, batch, WORLD)
    other = generate(model, rows, max_new_tokens=24, stop=WORLD.end, start=WORLD.start)
    for row, tokens in zip(found, other.tokens, strict=True):
        assert torch.equal(row[: len(tokens)], tokens)
        assert (row[len(tokens) :] == WORLD.padding).all()


def test_the_ideal_output_is_the_best() -> None:
    said = outputs(tiny_model(), Padded(replace(WORLD, noise=0.0)), seed=0, size=50)
    assert torch.equal(said.ideal, said.batch.targets)
    noisy = outputs(tiny_model(), Padded(WORLD), seed=0, size=2000)
    right = (noisy.ideal == noisy.batch.targets)[noisy.real].double().mean()
    assert float(right) == pytest.approx(WORLD.bayes_accuracy(), abs=0.02)
    assert float((~noisy.real).double().mean()) == pytest.approx(0.78, abs=0.01)


def test_perfect_outputs_score_one_wherever_sides_are_alike() -> None:
    said = outputs(tiny_model(), Padded(NOISIER, "masked", "all"), seed=0, size=40)
    truth = said.batch.targets
    found = all_scores(replace(said, forced=truth, decoded=truth), NOISIER)
    assert set(found) == set(WAYS)
    uneven = {
        "BLEU, padding in the output",
        "BLEU, padding in the reference",
        "BLEU, mean of sentences",
        "BLEU, text, split at blanks",
        "BLEU, text, 13a",
    }
    assert {name for name, value in found.items() if value < 1 - 1e-9} == uneven


def test_each_score_counts_what_it_says() -> None:
    said = outputs(tiny_model(), Padded(NOISIER, "masked", "all"), seed=0, size=40)
    truth = said.batch.targets
    only_padding = replace(said, forced=torch.full_like(truth, NOISIER.padding))
    found = all_scores(only_padding, NOISIER)
    share = float((~said.real).float().mean())
    assert found["accuracy, real tokens"] == 0
    assert found["accuracy, all positions"] == pytest.approx(share)
    assert found["accuracy, mask inverted"] == 1
    assert found["accuracy, mask one off"] > 0
    wrong_end = replace(said, forced=truth.masked_fill(truth == NOISIER.end, 0))
    assert all_scores(wrong_end, NOISIER)["accuracy, words alone"] == 1
    assert all_scores(wrong_end, NOISIER)["accuracy, real tokens"] < 1


def test_sentences_end_at_their_end() -> None:
    world, padding, end = WORLD, WORLD.padding, WORLD.end
    tokens = torch.tensor([[1, 2, end, padding], [3, end, 4, padding], [1, padding, 2, 3]])
    assert sentences(tokens, world) == [[1, 2], [3], [1, 2, 3]]
    assert sentences(tokens, world, end=True)[:2] == [[1, 2, end], [3, end]]


def test_text_by_hand() -> None:
    assert written([0, 9], tidy=True) == "Ash yew."
    words = [[0, 1, 2, 3, 4]]
    found = text_scores(words, words)
    assert found["text, 13a, lower case"] == 1
    assert found["text, characters"] == 1
    assert found["text, 13a"] == pytest.approx((5 / 6 * 4 / 5 * 3 / 4 * 2 / 3) ** 0.25)
    assert found["text, split at blanks"] == pytest.approx((3 / 6 * 2 / 5 * 1 / 4 * 0) ** 0.25)


@torch.no_grad()
def test_padding_is_hidden_by_masks_and_by_causality() -> None:
    for draw in range(3):
        reached = padding_reaches(draw)
        assert max(with_mask for with_mask, _ in reached.values()) < 1e-12
        assert min(without for _, without in reached.values()) > 1e-3


def test_the_formula_counts_padding() -> None:
    exact, without = drawn_scores(5)
    assert abs(exact) < 1e-12
    assert without < -0.05
    assert with_padding(0.3, 0.0) == 0.3
    shares = [
        fitted_share([0.2, 0.6], [with_padding(a, f) for a in (0.2, 0.6)]) for f in (0.3, 0.9)
    ]
    assert shares == pytest.approx([0.3, 0.9])


def test_independent_errors_in_a_long_text() -> None:
    rng = np.random.default_rng(0)
    reference = rng.integers(10**6, size=40_000)
    for share in (0.7, 0.9):
        output = np.where(rng.random(reference.size) < share, reference, -1)
        found = measure.corpus_bleu([output.tolist()], [reference.tolist()])
        assert independent_bleu(share) == pytest.approx(found, abs=0.01)


def test_made_up_outputs() -> None:
    perfect = dict(zip(READINGS, simulated_bleu(1.0, 3), strict=True))
    assert perfect["both trimmed"] == perfect["padding kept"] == 1
    assert perfect["reference trimmed"] < 0.2
    assert perfect["output trimmed"] < 0.2
    half = dict(zip(READINGS, simulated_bleu(0.5, 3), strict=True))
    assert half["both trimmed"] < half["mean, smoothed, trimmed"] < half["padding kept"] < 1
    assert PLAIN.pad_share == 0.78


def test_a_model_does_not_differ_from_itself() -> None:
    said = outputs(tiny_model(), Padded(WORLD), seed=0, size=50)
    same = compared(said, said, WORLD, 0)
    assert (same.difference, same.p) == (0, 1)
    better = compared(replace(said, decoded=said.batch.targets), said, WORLD, 0)
    assert better.difference > 0.9
    assert better.p < 0.01


def test_what_was_measured_adds_up() -> None:
    ladder, arms = RESULTS["ladder"], RESULTS["arms"]
    real, everywhere = (
        ladder.score.sel(way=f"accuracy, {n}") for n in ("real tokens", "all positions")
    )
    perfect = ladder.share + (1 - ladder.share) * real
    assert float(abs(everywhere - perfect).max()) < 0.01, "padding is predicted nearly always"
    assert float((arms.best - arms["real"].sel(arm="masked")).min()) > 0
    assert float(arms.everywhere.sel(arm=["masked", "open"]).max()) < 0.3
