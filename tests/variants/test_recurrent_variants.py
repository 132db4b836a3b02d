"""The LSTM is PyTorch's, the scan is the loop, and models of them train alone and in stacks alike."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.models.encoder_decoder import EncoderDecoder
from measured_transformer.tasks.running_parity import RunningParity
from measured_transformer.training.loop import train
from measured_transformer.training.stacked import train_stacked
from measured_transformer.variants.recurrent import (
    LSTM,
    Chrono,
    LinearRecurrence,
    LSTMLayers,
    Recurrent,
    linear_recurrence,
    recurrence,
    scan,
    state_width,
)

TIGHT = {"rtol": 0, "atol": 1e-12}
CONFIG = Config(vocab=9, d_model=16, n_heads=2, n_layers=2, positions="none")
PREPARED = {"one layer": Recurrent(), "two": Recurrent(layers=2), "linear": linear_recurrence}


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def model(prepare) -> Decoder:
    torch.manual_seed(0)
    made = Decoder(CONFIG)
    prepare(made)
    return made.double().eval()


def test_the_loop_gives_what_pytorchs_lstm_gives():
    torch.manual_seed(0)
    own, theirs = LSTM(5, 7).double(), torch.nn.LSTM(5, 7, batch_first=True).double()
    with torch.no_grad():
        theirs.weight_ih_l0.copy_(own.read.weight)
        theirs.weight_hh_l0.copy_(own.recur.weight)
        theirs.bias_ih_l0.copy_(own.read.bias)
        theirs.bias_hh_l0.zero_()
    x = normal(3, 11, 5)
    torch.testing.assert_close(own(x), theirs(x)[0], **TIGHT)


def test_forget_gates_alone_start_open():
    bias = LSTM(4, 3, forget=2.5).read.bias
    assert bias.tolist() == [0.0] * 3 + [2.5] * 3 + [0.0] * 6


@settings(deadline=None)
@given(st.integers(1, 40), st.integers(0, 1000))
def test_the_scan_gives_what_the_loop_gives(n, seed):
    keep, new = normal(2, n, 3, seed=seed).sigmoid(), normal(2, n, 3, seed=seed + 1)
    torch.testing.assert_close(scan(keep, new), recurrence(keep, new), **TIGHT)


def test_a_recurrence_by_hand():
    keep, new = torch.full((4, 1), 0.5), torch.tensor([[8.0], [4.0], [2.0], [1.0]])
    assert recurrence(keep, new).flatten().tolist() == [8, 8, 6, 4]
    assert scan(keep, new).flatten().tolist() == [8, 8, 6, 4]


@pytest.mark.parametrize("prepare", PREPARED.values(), ids=PREPARED)
def test_a_model_sees_nothing_ahead_and_something_behind(prepare):
    made = model(prepare)
    tokens = torch.arange(9)[None]
    other = tokens.clone()
    other[0, 4] = 0
    before, after = made(tokens), made(other)
    torch.testing.assert_close(before[:, :4], after[:, :4], **TIGHT)
    assert ((before - after)[:, 4:].abs().amax(-1) > 1e-9).all()


@pytest.mark.parametrize("prepare", PREPARED.values(), ids=PREPARED)
def test_a_body_is_as_large_as_that_of_the_transformer(prepare):
    weights = [
        sum(w.numel() for w in each.blocks.parameters())
        for each in (Decoder(CONFIG), model(prepare))
    ]
    assert weights[1] == pytest.approx(weights[0], rel=0.05)


def test_a_share_of_the_weights_is_a_share():
    whole = sum(w.numel() for w in Decoder(CONFIG).blocks.parameters())
    part = sum(w.numel() for w in model(Recurrent(share=0.25)).blocks.parameters())
    assert part == pytest.approx(whole / 4, rel=0.08)
    assert state_width(whole, 16, 3) < state_width(whole, 16, 1)


@pytest.mark.parametrize("prepare", PREPARED.values(), ids=PREPARED)
def test_a_stack_trains_as_one_alone(prepare):
    options = {"steps": 3, "learning_rate": 1e-2, "batch_size": 4, "prepare": prepare}
    config, task = CONFIG.replace(vocab=2), RunningParity(length=6)
    stacked = train_stacked(config, task, [1, 2], **options)
    alone = train(config, task, seed=1, **options)
    assert stacked[0].losses == pytest.approx(alone.losses, abs=1e-5)
    assert stacked[0].losses[0] != stacked[1].losses[0]


def test_equal_models_are_prepared_alike_and_others_otherwise():
    def weight(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        made = Decoder(CONFIG)
        torch.manual_seed(7)
        Recurrent()(made)
        return made.blocks[0].layers[0].read.weight

    assert torch.equal(weight(1), weight(1))
    assert not torch.equal(weight(1), weight(2))


def test_gates_start_as_their_paper_has_it():
    made = [Decoder(CONFIG) for _ in range(3)]
    for one, seed in zip(made, (1, 1, 2), strict=True):
        Chrono(longest=72)(one, seed=seed)
    layer, same, other = (one.blocks[0].layers[0] for one in made)
    width = layer.recur.in_features
    write, keep, rest = layer.read.bias.detach().split((width, width, 2 * width))
    assert torch.equal(write, -keep)
    assert not rest.any()
    times = keep.exp()
    assert times.min() >= 1
    assert times.max() <= 71.001
    assert abs(float(times.mean()) - 36) < 5 * 70 / (12 * width) ** 0.5
    assert torch.equal(keep, same.read.bias[width : 2 * width])
    assert not torch.equal(keep, other.read.bias[width : 2 * width])


def test_a_distance_of_two_tokens_has_no_times_to_draw():
    with pytest.raises(ValueError, match="at least 3 tokens, got 2"):
        Chrono(longest=2)


def test_dropout_drops_in_training_alone():
    layers = LSTMLayers(4, 5, 2, forget=1.0, dropout=0.5).double()
    x = normal(2, 3, 4)
    assert torch.equal(layers.eval()(x, causal=True), layers(x, causal=True))
    assert not torch.equal(layers.train()(x, causal=True), layers(x, causal=True))


def test_channels_keep_over_different_times():
    made = model(linear_recurrence)
    layer = made.blocks[0].attention
    assert isinstance(layer, LinearRecurrence)
    gates = layer.keep_gate.bias.sigmoid()
    assert gates[0].item() == pytest.approx(1 / 2)
    assert gates[-1].item() == pytest.approx(64 / 65)
    assert (gates.diff() > 0).all()


def test_what_does_not_fit_is_refused():
    x = normal(1, 3, 16)
    for part in (model(Recurrent()).blocks[0], model(linear_recurrence).blocks[0].attention):
        with pytest.raises(ValueError, match="causal model, got causal=False"):
            part(x)
        with pytest.raises(ValueError, match="stream alone, got padding_mask"):
            part(x, causal=True, padding_mask=torch.ones(1, 3, dtype=torch.bool))
    for prepare in (Recurrent(), linear_recurrence):
        with pytest.raises(ValueError, match="got an EncoderDecoder"):
            prepare(EncoderDecoder(CONFIG))
    encoder = Encoder(CONFIG)
    linear_recurrence(encoder)
    with pytest.raises(ValueError, match="causal"):
        encoder(torch.zeros(1, 3, dtype=torch.long))
    with pytest.raises(ValueError, match="one layer and a positive share, got 0"):
        Recurrent(layers=0)
    with pytest.raises(ValueError, match="bias=False"):
        linear_recurrence(Decoder(CONFIG.replace(bias=False)))
