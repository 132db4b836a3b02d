"""A preparation that draws is given the seed of its training, wherever models are made."""

from __future__ import annotations

import functools

import pytest
import torch
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.tasks.lag import Lag
from measured_transformer.training.loop import train
from measured_transformer.training.preparing import prepare_model, takes_seed

CONFIG = Config(vocab=6, d_model=8, n_layers=1, n_heads=2, positions="rotary")
TASK = Lag(vocab=6, lag=2)


class Drawn:
    """Sets one matrix to numbers drawn from the seed, and takes it out of training."""

    def __call__(self, model, *, seed):
        weight = model.blocks[0].attention.query.weight
        with torch.no_grad():
            weight.normal_(generator=torch.Generator().manual_seed(seed))
        weight.requires_grad_(False)


def plain(model):
    model.unembedding.requires_grad_(False)


def drawn(seed):
    return torch.randn(8, 8, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("seed", [0, 3])
def test_a_training_gives_its_seed(seed):
    run = train(CONFIG, TASK, steps=2, learning_rate=0.01, seed=seed, prepare=Drawn())
    assert torch.equal(run.model.blocks[0].attention.query.weight, drawn(seed))


def test_what_has_no_such_parameter_is_called_with_the_model_alone():
    model = Decoder(CONFIG)
    prepare_model(model, plain, 3)
    assert not model.unembedding.weight.requires_grad
    prepare_model(model, None, 3)


@pytest.mark.parametrize(
    ("prepare", "expected"),
    [(Drawn(), True), (plain, False), (functools.partial(Drawn(), seed=3), True), (print, False)],
    ids=["object", "function", "partial", "built in"],
)
def test_parameters_are_looked_up(prepare, expected):
    assert takes_seed(prepare) == expected
