"""A lens reads what the model will say: exactly where maps suffice, and of an untrained model no answers."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from measured_transformer.analysis import tuned_lens as m
from measured_transformer.analysis.lens import lens_logits, logit_lens
from measured_transformer.analysis.residual import random_model
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.tasks.lag import Lag
from measured_transformer.training.loop import make_model, train

TASK = Lag(vocab=16, length=16, lag=2, fidelity=0.9)
CONFIG = Config(vocab=16, d_model=32, n_layers=3, n_heads=2, positions="rotary")


def drawn(seed: int, size: int = 64):
    return TASK.batch(torch.Generator().manual_seed(seed), size)


@cache
def trained() -> Decoder:
    return train(CONFIG, TASK, seed=0, steps=150, batch_size=32, learning_rate=1e-2).model.eval()


def untrained() -> Decoder:
    return make_model(CONFIG, causal=True, seed=1).eval()


def test_where_a_map_suffices_least_squares_find_it() -> None:
    """Blocks that write constants: a state is the last one less the constants of later blocks."""
    model, _ = random_model(0, causal=True, n_layers=3)
    with torch.no_grad():
        for block in model.blocks:
            block.attention.output.weight.zero_()
            block.feedforward.down.weight.zero_()
            block.feedforward.down.bias.add_(torch.randn(model.config.d_model))
    tokens = torch.randint(11, (40, 8), generator=torch.Generator().manual_seed(0))
    lens = m.train_tuned_lens(model, tokens, seed=0, steps=0)
    assert (lens.gap[0][:-1] > 1e-2).all()
    assert (lens.gap[1] < 1e-10).all()
    torch.testing.assert_close(
        m.tuned_logits(model, lens, tokens)[0], model(tokens), rtol=0, atol=1e-4
    )


def test_the_lens_begins_as_the_logit_lens_and_ends_as_the_model() -> None:
    model, tokens = random_model(3, causal=True)
    lens = m.train_tuned_lens(model, tokens, seed=0, steps=3)
    nothing = type(lens)(0 * lens.weight, 0 * lens.bias, lens.gap)
    assert torch.equal(m.tuned_logits(model, nothing, tokens), lens_logits(model, tokens))
    assert torch.equal(m.tuned_logits(model, lens, tokens)[-1], lens_logits(model, tokens)[-1])
    assert lens.gap[1][-1] == 0


def test_the_gap_is_the_divergence_on_positions_apart() -> None:
    """What the formula gives on other sequences, within what the sample leaves open."""
    model = trained()
    lens = m.train_tuned_lens(model, drawn(1).inputs, seed=0, steps=60)
    other = drawn(2).inputs
    read = m.tuned_logits(model, lens, other).log_softmax(-1)
    plain = lens_logits(model, other).log_softmax(-1)
    wanted = read[-1]
    for log_read, gap in ((plain, lens.gap[0]), (read, lens.gap[1])):
        by_hand = (wanted.exp() * (wanted - log_read)).sum(-1).mean((1, 2))
        assert by_hand.tolist() == pytest.approx(gap.tolist(), rel=0.25, abs=0.02)


def test_training_brings_the_lens_nearer_to_the_model_and_to_the_answers() -> None:
    model, held = trained(), drawn(2)
    closed = m.train_tuned_lens(model, drawn(1).inputs, seed=0, steps=0)
    lens = m.train_tuned_lens(model, drawn(1).inputs, seed=0, steps=150, rate=3e-3)
    assert (lens.gap[1][:-1] < closed.gap[1][:-1]).all()
    assert (lens.gap[1][:-1] < 0.9 * lens.gap[0][:-1]).all()
    tuned, plain = lens.read(model, held), logit_lens(model, held)
    assert (tuned.loss[:-1] < plain.loss[:-1]).all()
    assert tuned.loss[-1] == pytest.approx(plain.loss[-1])
    assert tuned.accuracy[-2] > 0.5


def test_a_lens_on_an_untrained_model_reads_no_answers() -> None:
    """The control: it comes near that model too, and what it reads is right no more often than a guess."""
    model, held = untrained(), drawn(2)
    lens = m.train_tuned_lens(model, drawn(1).inputs, seed=0, steps=100, rate=3e-3)
    assert (lens.gap[1][:-1] < lens.gap[0][:-1]).all()
    read = lens.read(model, held)
    assert (read.accuracy < 2 / 16).all()
    assert (read.loss > 2.7).all()  # the logarithm of sixteen tokens is 2.77
    best = m.train_tuned_lens(trained(), drawn(1).inputs, seed=0, steps=100, rate=3e-3)
    assert best.read(trained(), held).loss.min() < 1.5


def test_the_model_stays_as_it_is_and_the_seed_decides() -> None:
    model, tokens = random_model(2, causal=True)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    first, second = (m.train_tuned_lens(model, tokens, seed=5, steps=4) for _ in range(2))
    assert torch.equal(first.weight, second.weight)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"places": 0}, "expected positive places, size and rate"),
        ({"size": 0}, "got 4096, 0"),
        ({"rate": 0.0}, "0.0 and"),
        ({"steps": -1}, "-1"),
        ({"held": 0.0}, "held=0.0 of .* leaves none"),
        ({"held": 1.0}, "held=1.0 of"),
    ],
)
def test_what_cannot_be_fitted_is_refused(changes, message) -> None:
    model, tokens = random_model(2, causal=True)
    with pytest.raises(ValueError, match=message):
        m.train_tuned_lens(model, tokens, seed=0, **changes)


def test_models_without_a_head_and_lenses_of_others_are_refused() -> None:
    model, tokens = random_model(2, causal=True, head="none")
    with pytest.raises(ValueError, match="no head to say it with"):
        m.train_tuned_lens(model, tokens, seed=0)
    model, tokens = random_model(2, causal=True, n_layers=2)
    lens = m.train_tuned_lens(model, tokens, seed=0, steps=0)
    other, _ = random_model(2, causal=True, n_layers=3)
    with pytest.raises(ValueError, match=r"is for 2 layers of width .* has 3 of width"):
        m.tuned_logits(other, lens, tokens)
