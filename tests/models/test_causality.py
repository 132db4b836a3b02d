"""A decoder never sees ahead and does see back; an encoder sees both ways."""

import pytest
import torch
from measured_transformer.internals.capture import capture
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder

SCHEMES = ["sinusoidal", "learned", "rotary", "alibi", "relative", "none"]
VOCAB = 13
SMALL = Config(vocab=VOCAB, d_model=16, n_layers=2, n_heads=4, d_ff=24, max_length=64)


def made(model, config, seed=0):
    torch.manual_seed(seed)
    return model(config).double().eval()


def tokens(*shape, seed=0):
    return torch.randint(VOCAB, shape, generator=torch.Generator().manual_seed(seed))


def run(model, x, look, padding_mask=None):
    with torch.no_grad():
        if not look:
            return model(x, padding_mask=padding_mask)
        with capture(model, "*.pattern"):
            return model(x, padding_mask=padding_mask)


def padding(side, batch, n):
    """Every sequence but the first has padding, and at least one real token."""
    real = torch.ones(batch, n, dtype=torch.bool)
    for row in range(1, batch):
        missing = (n - 1) * row // batch
        if side == "left":
            real[row, :missing] = False
        if side == "right":
            real[row, n - missing :] = False
    return None if side is None else real


@pytest.mark.parametrize("look", [False, True], ids=["fused", "explicit"])
@pytest.mark.parametrize("side", [None, "left", "right"])
@pytest.mark.parametrize(
    ("positions", "placement", "n_kv_heads"),
    [
        *((scheme, "pre", 4) for scheme in SCHEMES),
        ("rotary", "pre", 2),
        ("alibi", "pre", 1),
        ("rotary", "post", 2),
        ("sinusoidal", "post", 4),
    ],
)
def test_no_output_depends_on_a_later_token_at_any_length(
    positions, placement, n_kv_heads, side, look
):
    config = SMALL.replace(positions=positions, placement=placement, n_kv_heads=n_kv_heads)
    model = made(Decoder, config)
    for n in range(2, 65, 1 if side is None else 3):
        at = 1 + (7 * n) % (n - 1) if n > 2 else 1
        x = tokens(3, n, seed=n)
        changed = x.clone()
        changed[:, at] = (x[:, at] + 1) % VOCAB
        real = padding(side, 3, n)
        difference = (run(model, x, look, real) - run(model, changed, look, real)).abs().amax(-1)
        assert (difference[:, :at] < 1e-12).all(), f"length {n}: a change at {at} is seen earlier"
        assert (difference[:, at] > 1e-6).all(), f"length {n}: a change at {at} is not seen there"


@pytest.mark.parametrize("placement", ["pre", "post"])
@pytest.mark.parametrize("positions", SCHEMES)
def test_every_real_token_of_the_past_matters(positions, placement):
    model = made(Decoder, SMALL.replace(positions=positions, placement=placement))
    x = tokens(1, 12)
    for look in (False, True):
        for at in range(12):
            changed = x.clone()
            changed[:, at] = (x[:, at] + 1) % VOCAB
            difference = (run(model, x, look) - run(model, changed, look)).abs().amax(-1)[0]
            assert (difference[at:] > 1e-7).all()
            assert (difference[:at] < 1e-12).all()


@pytest.mark.parametrize("positions", SCHEMES)
def test_an_encoder_sees_the_future(positions):
    model = made(Encoder, SMALL.replace(positions=positions))
    x = tokens(1, 12)
    changed = x.clone()
    changed[:, -1] = (x[:, -1] + 1) % VOCAB
    for look in (False, True):
        difference = (run(model, x, look) - run(model, changed, look)).abs().amax(-1)[0]
        assert (difference > 1e-7).all()


@pytest.mark.parametrize("model", [Decoder, Encoder])
@pytest.mark.parametrize("positions", SCHEMES)
def test_padding_tokens_change_no_real_output(model, positions):
    model = made(model, SMALL.replace(positions=positions))
    x = tokens(3, 9)
    for side in ("left", "right"):
        real = padding(side, 3, 9)
        other = torch.where(real, x, (x + 5) % VOCAB)
        for look in (False, True):
            a, b = run(model, x, look, real), run(model, other, look, real)
            torch.testing.assert_close(a[real], b[real], rtol=0, atol=1e-12)
            a, b = run(model, x, look), run(model, other, look)
            seen = side == "left" or isinstance(model, Encoder)
            assert torch.allclose(a[real], b[real], atol=1e-6) != seen, "unmasked, it is seen"


@pytest.mark.parametrize("positions", SCHEMES)
def test_right_padding_gives_what_the_short_sequence_gives(positions):
    x = tokens(1, 9)
    real = torch.arange(9)[None] < 6
    for kind in (Decoder, Encoder):
        model = made(kind, SMALL.replace(positions=positions))
        padded = run(model, x, False, real)[:, :6]
        torch.testing.assert_close(padded, run(model, x[:, :6], False), rtol=0, atol=1e-12)


@pytest.mark.parametrize("positions", SCHEMES)
def test_no_scheme_notices_left_padding(positions):
    model = made(Decoder, SMALL.replace(positions=positions))
    x = tokens(1, 9)
    real = torch.arange(9)[None] >= 3
    for look in (False, True):
        padded = run(model, x, look, real)[:, 3:]
        torch.testing.assert_close(padded, run(model, x[:, 3:], look), rtol=0, atol=1e-11)


@pytest.mark.parametrize("positions", SCHEMES)
def test_an_encoder_knows_the_order_only_from_its_positions(positions):
    model = made(Encoder, SMALL.replace(positions=positions))
    x = tokens(1, 8)
    order = torch.randperm(8, generator=torch.Generator().manual_seed(1))
    moved = torch.allclose(
        run(model, x[:, order], False), run(model, x, False)[:, order], rtol=0, atol=1e-10
    )
    assert moved == (positions == "none")
