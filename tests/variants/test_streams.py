"""Several streams begin as one, mix as their papers say, and decode as they compute."""

import pytest
import torch
from measured_transformer.inference.generate import generate
from measured_transformer.internals.capture import capture
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder_decoder import EncoderDecoder
from measured_transformer.variants.streams import (
    Connection,
    ManyStreams,
    composite_gain,
    doubly_stochastic,
)

SIZES = Config(vocab=11, d_model=16, n_heads=2, n_layers=3, positions="rotary")
TOKENS = torch.arange(14).view(2, 7) % 11
BOTH = pytest.mark.parametrize("constrained", [False, True])


def changed(model, size=0.3):
    """The model with all weights of its connections moved at random."""
    generator = torch.Generator().manual_seed(1)
    for module in model.modules():
        if isinstance(module, Connection):
            for weight in module.parameters():
                weight.data += size * torch.randn(weight.shape, generator=generator)
    return model


def streamed(constrained, *, streams=4, dtype=torch.float64):
    torch.manual_seed(0)
    plain = Decoder(SIZES).to(dtype).eval()
    with torch.no_grad():
        expected = plain(TOKENS)
    ManyStreams(streams, constrained)(plain)
    return plain, expected


@BOTH
@pytest.mark.parametrize("streams", [2, 3, 4])
@torch.no_grad()
def test_at_first_they_compute_what_one_stream_does(constrained, streams):
    model, expected = streamed(constrained, streams=streams)
    # the final norm sees the sum, so that its epsilon is smaller in proportion
    torch.testing.assert_close(model(TOKENS), expected, rtol=1e-4, atol=1e-4)


@BOTH
@torch.no_grad()
def test_a_sublayer_does_what_the_formula_says(constrained):
    model, _ = streamed(constrained)
    changed(model)
    block = model.blocks[1]
    taps = ["residual_pre", "residual_mid", "attention_streams.*"]
    with capture(model, *(f"blocks.1.{tap}" for tap in taps)) as seen:
        model(TOKENS)
    x = seen["blocks.1.residual_pre"]
    read, write, mix = (
        seen[f"blocks.1.attention_streams.{name}"] for name in ("reading", "writing", "mixing")
    )
    rotation = model.embed(TOKENS, model.resolve_positions(TOKENS))[1]
    wrote = block.attention(
        block.attention_norm(torch.einsum("bps,bpsd->bpd", read, x)), causal=True, rotation=rotation
    )
    expected = torch.einsum("bpst,bptd->bpsd", mix, x) + torch.einsum("bps,bpd->bpsd", write, wrote)
    torch.testing.assert_close(seen["blocks.1.residual_mid"], expected)


@torch.no_grad()
def test_hyper_connections_compute_their_matrices_from_normalised_rows():
    one = Connection(8, 3, 1, constrained=False).double()
    generator = torch.Generator().manual_seed(2)
    for weight in one.parameters():
        weight.data = torch.randn(weight.shape, generator=generator, dtype=torch.float64)
    x = torch.randn(1, 1, 3, 8, generator=generator, dtype=torch.float64)
    read, write, mix = one(x)
    rows = x[0, 0] / x[0, 0].square().mean(-1, keepdim=True).sqrt()
    for j in range(3):  # the stream that gives
        found = torch.tanh(one.projection @ rows[j])
        torch.testing.assert_close(read[0, 0, j], one.factors[0] * found[0] + one.reading_bias[j])
        torch.testing.assert_close(write[0, 0, j], one.factors[1] * found[1] + one.writing_bias[j])
        for i in range(3):  # the stream that is given to
            expected = one.factors[2] * found[2 + i] + one.mixing_bias[i, j]
            torch.testing.assert_close(mix[0, 0, i, j], expected, rtol=1e-5, atol=1e-6)


@torch.no_grad()
def test_constrained_mixtures_are_doubly_stochastic_and_so_are_their_products():
    model = changed(streamed(True)[0], size=1.0)
    with capture(model, "*.mixing", "*.reading", "*.writing") as seen:
        model(TOKENS)
    mixings = [value for name, value in seen.items() if name.endswith("mixing")]
    assert len(mixings) == 2 * SIZES.n_layers
    for mix in mixings:
        assert (mix > 0).all()
        torch.testing.assert_close(mix.sum(-1), torch.ones_like(mix[..., 0]))
        assert (
            mix.sum(-2) - 1
        ).abs().max() < 0.2  # rows come last, so columns are exact in the limit
    forward, backward = composite_gain(mixings)
    assert forward == pytest.approx(1.0)
    assert backward == pytest.approx(1.0, abs=0.2)
    free = changed(streamed(False)[0])
    with capture(free, "*.mixing") as seen:
        free(TOKENS)
    assert max(composite_gain(list(seen.values()))) > 1.5


def test_sums_are_one_whatever_the_scores():
    scores = torch.randn(50, 4, 4, generator=torch.Generator().manual_seed(3)).double()
    found = doubly_stochastic(3 * scores)
    torch.testing.assert_close(found.sum(-1), torch.ones(50, 4).double())
    assert (found.sum(-2) - 1).abs().max() < 0.2
    torch.testing.assert_close(
        doubly_stochastic(scores, 500).sum(-2), torch.ones(50, 4).double(), atol=1e-8, rtol=0
    )


@torch.no_grad()
def test_gain_of_a_product_by_hand():
    first = torch.tensor([[1.0, -1.0], [0.0, 2.0]])[None, None]
    second = torch.tensor([[1.0, 1.0], [0.0, 1.0]])[None, None]
    # second after first: [[1, 1], [0, 2]]
    assert composite_gain([first, second]) == (2.0, 3.0)
    assert composite_gain([second, first]) == (2.0, 2.0)  # [[1, 0], [0, 2]]


@BOTH
def test_pieces_are_decoded_as_the_whole(constrained):
    model = changed(streamed(constrained)[0])
    (written,) = generate(model, [TOKENS[0, :3].tolist()], max_new_tokens=6).tokens
    expected = TOKENS[:1, :3]
    for _ in range(6):
        with torch.no_grad():
            following = model(expected)[:, -1].argmax(-1, keepdim=True)
        expected = torch.cat((expected, following), 1)
    assert list(written)[-6:] == expected[0, 3:].tolist()


@BOTH
def test_every_weight_learns(constrained):
    model = changed(streamed(constrained)[0])
    model(TOKENS).logsumexp(-1).square().mean().backward()
    for name, weight in model.named_parameters():
        if "streams" in name:
            assert weight.grad is not None, name
            assert weight.grad.abs().max() > 0, name


def test_what_has_no_streams_to_multiply_is_refused():
    with pytest.raises(ValueError, match="at least 2 streams, got 1"):
        ManyStreams(1)
    with pytest.raises(ValueError, match="one stack with a final norm"):
        ManyStreams()(EncoderDecoder(SIZES.replace(n_decoder_layers=1)))
    with pytest.raises(ValueError, match="one stack with a final norm"):
        ManyStreams()(Decoder(SIZES.replace(placement="post")))
    for change in ({"placement": "branch"}, {"parallel": True}, {"dropout": 0.1}):
        with pytest.raises(ValueError, match="expected pre-norm blocks"):
            ManyStreams()(Decoder(SIZES.replace(**change)))
