"""Translations, scores and spreads of cases that are known, and what was measured."""

import numpy as np
import pytest
import torch
import xarray as xr
from measured_book.evidence.results import load_results
from measured_book.measuring.jobs import wanted_searches
from measured_book.rooms.depth_and_heads.measure import (
    DEPTHS,
    GRID,
    HEADS,
    OPEN,
    REPORTED,
    SCORES,
    TASK,
    WORLD,
    Arm,
    Unmasked,
    sacre,
    scores,
    sentences,
    text,
    translations,
    violations,
    without_masks,
)
from measured_book.rooms.depth_and_heads.reading import (
    by_size,
    ranges,
)
from measured_transformer.analysis.bleu import corpus_bleu
from measured_transformer.inference.beams import BeamSearch
from measured_transformer.models.config import Config
from measured_transformer.tasks.task import held_out
from measured_transformer.training.loop import make_model, train
from measured_transformer.training.seeding import make_generator

RESULTS = load_results("depth_and_heads")
TINY = Config(
    vocab=WORLD.vocab, d_model=16, n_layers=2, n_heads=2, max_length=16, positions="learned"
)


def tiny_model(seed: int = 0):
    return make_model(TINY, causal=True, source=True, seed=seed).eval()


def few(count: int = 12):
    return TASK.batch(make_generator(1, "training"), count)


def test_violations_by_hand() -> None:
    rising = np.arange(9.0).reshape(3, 3)
    assert violations(rising) == (0, 27)
    assert violations(-rising) == (27, 27)
    reported = np.array(REPORTED["validation"]).reshape(3, 3)
    worse = [((4, 2), (6, 4)), ((4, 4), (6, 4)), ((6, 2), (6, 4))]
    for small, large in worse:
        cells = [reported[DEPTHS.index(d), HEADS.index(h)] for d, h in (small, large)]
        assert cells[1] < cells[0]
    assert violations(reported)[0] == len(worse)


def test_arms_differ_in_what_they_say() -> None:
    with wanted_searches():
        jobs = {name: arm.training(3) for name, arm in GRID.items()}
        open_job = Arm(mask=False).training(3)
    for (depth, heads), job in jobs.items():
        config = job.config
        assert (config.n_layers, config.n_heads, config.n_decoder_layers) == (depth, heads, 2)
        assert job.task == TASK
    assert open_job.task == OPEN
    assert open_job.config == jobs[4, 4].config


def test_without_masks_the_sentences_are_the_same() -> None:
    masked = WORLD.batch(make_generator(0, "training"), 8)
    unmasked = Unmasked(WORLD).batch(make_generator(0, "training"), 8)
    assert torch.equal(masked.source, unmasked.source)
    assert torch.equal(masked.scored, unmasked.scored)
    assert unmasked.padding_mask is None
    assert unmasked.source_padding_mask is None
    assert torch.equal(TASK.sequences().source, OPEN.sequences().source)


def test_test_sentences_are_held_out() -> None:
    test, training = sentences()
    seen = {tuple(row) for row in TASK.sequences().source.tolist()}
    assert not seen & {tuple(row) for row in test.source.tolist()}
    assert seen >= {tuple(row) for row in training.source.tolist()}
    validation = held_out(TASK).batch(make_generator(0, "evaluation"), 200)
    tested = {tuple(row) for row in test.source.tolist()}
    assert not tested & {tuple(row) for row in validation.source.tolist()}


@torch.no_grad()
@pytest.mark.parametrize("mask", [True, False])
def test_greedy_translations_are_the_likeliest_tokens_one_by_one(mask: bool) -> None:
    model, batch = tiny_model(), few() if mask else without_masks(few())
    found = translations(model, batch)
    memory = model.encode(batch.source, padding_mask=batch.source_padding_mask)
    for row, tokens in enumerate(found):
        real = None if not mask else batch.source_padding_mask[row : row + 1]
        inputs = torch.tensor([[WORLD.start, *tokens[:-1]]])
        logits = model.decode(inputs, memory[row : row + 1], memory_padding_mask=real)
        assert logits.argmax(-1)[0].tolist() == tokens


@torch.no_grad()
def test_a_beam_finds_texts_that_are_at_least_as_likely_for_their_length() -> None:
    model, batch = tiny_model(3), few(30)

    def mean_log_prob(row, tokens):
        real = batch.source_padding_mask[row : row + 1]
        memory = model.encode(batch.source[row : row + 1], padding_mask=real)
        inputs = torch.tensor([[WORLD.start, *tokens[:-1]]])
        log_probs = model.decode(inputs, memory, memory_padding_mask=real).log_softmax(-1)[0]
        return float(log_probs[range(len(tokens)), tokens].mean())

    pairs = zip(translations(model, batch), translations(model, batch, BeamSearch(4)), strict=True)
    better = [mean_log_prob(i, b) - mean_log_prob(i, a) for i, (a, b) in enumerate(pairs)]
    assert np.mean(better) > 0


def test_sacrebleu_and_the_book_agree() -> None:
    draw = np.random.default_rng(0)
    truth = [[int(t) for t in draw.integers(8, size=draw.integers(3, 9))] for _ in range(40)]
    said = [[t if draw.random() < 0.8 else 9 for t in row][: draw.integers(3, 9)] for row in truth]
    found = sacre([text(row) for row in said], [text(row) for row in truth])
    assert found == pytest.approx(corpus_bleu(said, truth), abs=1e-9)


def test_text_ends_at_its_end() -> None:
    assert text([1, 2, WORLD.end, 3]) == "w1 w2"
    assert text([1, 2]) == "w1 w2"


def test_scores_of_a_model() -> None:
    run = train(TINY, TASK, steps=2, learning_rate=1e-3, seed=0, batch_size=4)
    found = scores(run)
    assert set(found) == set(SCORES)
    assert found["accuracy"] < 0.3
    assert found["loss"] > 1
    assert scores(run, mask=False)["accuracy"] != found["accuracy"]


def grid_of(values: np.ndarray) -> xr.DataArray:
    return xr.DataArray(
        values,
        dims=("seed", "depth", "heads"),
        coords={"depth": list(DEPTHS), "heads": list(HEADS)},
    )


def test_spreads_of_models_and_of_seeds() -> None:
    values = grid_of(np.broadcast_to(np.arange(9.0).reshape(3, 3), (9, 3, 3)).copy())
    between, within = ranges(values)
    assert between.tolist() == [8.0] * 9
    assert within.tolist() == [0.0] * 9
    turned = grid_of(np.broadcast_to(np.arange(9.0)[:, None, None], (9, 3, 3)).copy())
    between, within = ranges(turned)
    assert between.tolist() == [0.0] * 9
    assert within.tolist() == [8.0] * 9


def test_means_by_size() -> None:
    values = grid_of(np.broadcast_to(np.arange(9.0).reshape(3, 3), (2, 3, 3)).copy())
    assert by_size(values, "depth").sel(depth=2).values.tolist() == [1.0, 1.0]
    assert by_size(values, "heads").sel(heads=2).values.tolist() == [3.0, 3.0]


def test_what_was_measured_has_room_and_is_no_chance() -> None:
    grid, ideal = RESULTS["grid"], RESULTS["ideal"]
    assert float(ideal.accuracy.item()) == pytest.approx(WORLD.bayes_accuracy(), abs=0.01)
    assert 0.1 < float(ideal.padding.item()) < 0.2, "short sentences are mostly in the set"
    assert float(grid.accuracy.min()) > 0.5, "every model has learned the task"
    assert float(grid.accuracy.max()) < float(ideal.accuracy.item()) + 0.01
