"""The sheet's models on Shakespeare's words: every word has a number, bodies are alike, an epoch is one."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from measured_book.evidence.results import load_result
from measured_book.evidence.seeds import seeds_of
from measured_book.rooms.shakespeare_words import figures, measure
from measured_book.rooms.shakespeare_words.measure import (
    BATCH,
    DEFAULT,
    EPOCH,
    FILE,
    LAYERS,
    MODELS,
    RACERS,
    TEXT,
    WIDTH,
    WORDS,
    at_the_default,
    epoch,
    on_validation,
)
from measured_transformer.tasks.corpora import data_folder
from measured_transformer.training.loop import make_model

EPOCHS, PLAIN, ABOUT = (
    load_result("shakespeare_words", name) for name in ("epoch", "at_the_default", "text")
)


@pytest.fixture(autouse=True)
def _rates_are_not_searched_for(monkeypatch):
    monkeypatch.setattr(measure, "tuned", lambda search: search.rates[2])


def model_of(name):
    job = epoch.trainings.train(0, model=name)
    model = make_model(job.config, causal=True, seed=0)
    if prepare := job.settings.get("prepare"):
        prepare(model)
    return job, model


def body(model):
    return sum(weight.numel() for weight in model.blocks.parameters())


needs_the_text = pytest.mark.skipif(
    not (data_folder() / FILE).is_file(), reason=f"{FILE} is not in the data folder"
)


@needs_the_text
def test_every_word_of_training_has_a_number_of_its_own_and_none_is_unknown():
    tokens = TEXT.tokens()
    assert sorted(set(tokens.tolist())) == list(range(1, WORDS))
    assert float(ABOUT.words.squeeze()) == len(tokens)


def test_an_epoch_has_about_as_many_words_as_the_text():
    assert EPOCH * BATCH * TEXT.length == pytest.approx(
        float(ABOUT.words.squeeze()), abs=BATCH * TEXT.length
    )


def test_bodies_of_the_two_racers_have_as_many_weights():
    sizes = [body(model_of(name)[1]) for name in RACERS]
    assert sizes[1] == pytest.approx(sizes[0], rel=0.02)


def test_depths_differ_in_nothing_but_depth():
    jobs = {name: model_of(name)[0] for name in LAYERS}
    plain = jobs["two layers"]
    assert plain.config.d_model == WIDTH
    for name, job in jobs.items():
        assert job.config.n_layers == LAYERS[name]
        assert job.config.replace(n_layers=2) == plain.config
        assert (job.settings, job.task) == (plain.settings, plain.task)


def test_the_default_rate_is_that_of_adam():
    for name in RACERS:
        job = at_the_default.trainings.train(0, model=name)
        assert job.settings["learning_rate"] == DEFAULT == 1e-3
        assert job.config == model_of(name)[0].config


def test_validation_is_the_mean_over_windows_side_by_side(monkeypatch):
    short = torch.arange(1, 71) % WORDS
    monkeypatch.setattr(type(TEXT), "tokens", lambda self: short)
    seen = []

    def model(tokens):
        seen.append(tokens)
        return torch.zeros(*tokens.shape, WORDS)

    found = on_validation(SimpleNamespace(model=model))
    assert found["validation"] == pytest.approx(np.log(WORDS), rel=1e-5)
    assert torch.equal(torch.cat(seen).flatten(), short[:64])


def test_the_figure_has_a_row_for_every_model_at_its_own_rate_and_two_at_the_default():
    assert set(EPOCHS.model.values) == set(MODELS)
    drawn = figures.plot_epoch(EPOCHS, PLAIN, ABOUT).figure
    labels = [text.get_text() for text in drawn.axes[0].get_yticklabels()]
    assert labels == [name for _, name in figures.ARMS.values()][: len(labels)]
    assert len(labels) == len(MODELS) + len(RACERS)


def test_further_runs_are_the_same_trainings_on_seeds_of_their_own():
    others = {
        job.seed
        for grid in (epoch, at_the_default, measure.ten_runs)
        for seed in seeds_of(grid.seeds)
        for job in grid.trainings(seed).values()
    }
    for name in RACERS:
        seeds = seeds_of(measure.runs_afresh.seeds)
        jobs = [measure.runs_afresh.trainings.train(seed, model=name) for seed in seeds]
        plain = at_the_default.trainings.train(0, model=name)
        assert len({job.seed for job in jobs}) == 16
        assert not others & {job.seed for job in jobs}
        assert all((one.config, one.task) == (plain.config, plain.task) for one in jobs)
        assert all(one.settings == plain.settings for one in jobs)
