"""The encoder-decoder: equal to PyTorch's, causal on the target side, and blind to padding."""

import warnings

import measured_transformer
import pytest
import torch
from measured_transformer.internals.capture import capture
from measured_transformer.models.config import Config
from measured_transformer.models.encoder_decoder import EncoderDecoder
from measured_transformer.parts.position_schemes import SCHEMES
from torch import nn

VOCAB = 13
SMALL = Config(vocab=VOCAB, d_model=16, n_layers=2, n_heads=4, d_ff=24, max_length=64)


def made(config, seed=0):
    torch.manual_seed(seed)
    return EncoderDecoder(config).double().eval()


def tokens(*shape, seed=0):
    return torch.randint(VOCAB, shape, generator=torch.Generator().manual_seed(seed))


def run(model, look, *inputs, **masks):
    with torch.no_grad():
        if not look:
            return model(*inputs, **masks)
        with capture(model, "*.pattern"):
            return model(*inputs, **masks)


def test_it_stands_at_the_front_door():
    assert measured_transformer.EncoderDecoder is EncoderDecoder


def copied(ours, theirs):
    """Give PyTorch's stacks our weights; its projections of queries, keys and values are one."""
    for mine, yours in zip(ours.blocks, theirs.layers, strict=True):
        pairs = [(mine.attention, yours.self_attn)]
        norms = [mine.attention_norm]
        if mine.cross_attention is not None:
            pairs.append((mine.cross_attention, yours.multihead_attn))
            norms.append(mine.cross_attention_norm)
        norms.append(mine.feedforward_norm)
        for a, b in pairs:
            parts = (a.query, a.key, a.value)
            b.in_proj_weight.copy_(torch.cat([p.weight for p in parts]))
            b.in_proj_bias.copy_(torch.cat([p.bias for p in parts]))
            b.out_proj.load_state_dict(a.output.state_dict())
        for number, norm in enumerate(norms, start=1):
            getattr(yours, f"norm{number}").load_state_dict(norm.state_dict())
        yours.linear1.load_state_dict(mine.feedforward.up.state_dict())
        yours.linear2.load_state_dict(mine.feedforward.down.state_dict())
    theirs.norm.load_state_dict(ours.final_norm.state_dict())


@pytest.mark.parametrize("look", [False, True], ids=["fused", "explicit"])
@pytest.mark.parametrize("placement", ["pre", "post"])
@torch.no_grad()
def test_equal_to_pytorch(placement, look):
    config = SMALL.replace(
        placement=placement, final_norm=True, activation="relu", n_decoder_layers=3
    )
    ours = made(config)
    for parameter in ours.parameters():
        parameter += 0.2 * torch.randn_like(parameter)
    with warnings.catch_warnings(action="ignore"):  # of a faster path that it does not take
        theirs = nn.Transformer(
            16, 4, 2, 3, 24, 0.0, batch_first=True, norm_first=placement == "pre"
        ).double()
    copied(ours.encoder, theirs.encoder)
    copied(ours.decoder, theirs.decoder)
    source, target = tokens(3, 9), tokens(3, 7, seed=1)
    padded = torch.arange(9) >= torch.tensor([9, 5, 1])[:, None]
    # In training mode PyTorch takes the plain path; there is no dropout.
    expected = theirs.train()(
        _embedded(ours.encoder, source),
        _embedded(ours.decoder, target),
        tgt_mask=nn.Transformer.generate_square_subsequent_mask(7, dtype=torch.float64),
        src_key_padding_mask=padded,
        memory_key_padding_mask=padded,
    )
    with capture(ours, "decoder.final_state") as seen:
        run(ours, look, source, target, source_padding_mask=~padded)
    torch.testing.assert_close(seen["decoder.final_state"], expected, rtol=1e-10, atol=1e-10)


def _embedded(stack, numbers):
    with capture(stack, "embedding") as seen:
        stack.stream(numbers, memory=None if not stack.causal else torch.zeros(3, 1, 16).double())
    return seen["embedding"]


@pytest.mark.parametrize("look", [False, True], ids=["fused", "explicit"])
@pytest.mark.parametrize("side", [None, "left", "right"])
@pytest.mark.parametrize("positions", ["sinusoidal", "rotary", "alibi", "relative"])
def test_no_output_depends_on_a_later_target_at_any_length(positions, side, look):
    model = made(SMALL.replace(positions=positions, n_kv_heads=2))
    source = tokens(2, 5)
    for n in range(2, 65, 1 if side is None else 5):
        at = 1 + (7 * n) % (n - 1) if n > 2 else 1
        target = tokens(2, n, seed=n)
        changed = target.clone()
        changed[:, at] = (target[:, at] + 1) % VOCAB
        real = torch.ones(2, n, dtype=torch.bool)
        if side == "left":
            real[1, : min(2, at)] = False
        if side == "right":
            real[1, max(n - 2, at + 1) :] = False
        before = run(model, look, source, target, target_padding_mask=real)
        after = run(model, look, source, changed, target_padding_mask=real)
        difference = (before - after).abs().amax(-1)
        assert (difference[:, :at] < 1e-12).all(), f"length {n}: a change at {at} is seen earlier"
        assert (difference[:, at] > 1e-6).all(), f"length {n}: a change at {at} is not seen there"


@pytest.mark.parametrize("positions", SCHEMES)
def test_every_target_position_reads_every_source_position_both_ways(positions):
    model = made(SMALL.replace(positions=positions))
    source, target = tokens(1, 6), tokens(1, 5, seed=1)
    for at in range(6):
        changed = source.clone()
        changed[:, at] = (source[:, at] + 1) % VOCAB
        difference = run(model, False, source, target) - run(model, False, changed, target)
        assert (difference.abs().amax(-1) > 1e-7).all()


@pytest.mark.parametrize("look", [False, True], ids=["fused", "explicit"])
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("positions", SCHEMES)
def test_padding_on_either_side_of_source_and_target_changes_nothing(positions, side, look):
    model = made(SMALL.replace(positions=positions))
    source, target, lengths = tokens(3, 9), tokens(3, 7, seed=1), torch.tensor([7, 4, 1])[:, None]

    def real(n, lengths):
        where = torch.arange(n)
        return where < lengths if side == "right" else where >= n - lengths

    source_real, target_real = real(9, lengths + 2), real(7, lengths)
    masks = {"source_padding_mask": source_real, "target_padding_mask": target_real}
    padded = run(model, look, source, target, **masks)
    for row in range(3):
        alone = run(
            model,
            look,
            source[row : row + 1, source_real[row]],
            target[row : row + 1, target_real[row]],
        )
        torch.testing.assert_close(padded[row, target_real[row]], alone[0], rtol=1e-11, atol=1e-11)


def test_one_embedding_serves_both_sides_and_may_serve_the_end():
    for tied in (False, True):
        model = made(SMALL.replace(tie_embeddings=tied))
        embedding = model.encoder.token_embedding.weight
        assert model.decoder.token_embedding.weight is embedding
        assert (model.unembedding.weight is embedding) == tied
        again = made(SMALL.replace(tie_embeddings=tied), seed=1)
        again.load_state_dict(model.state_dict())
        source, target = tokens(2, 4), tokens(2, 3)
        assert torch.equal(run(again, False, source, target), run(model, False, source, target))


def test_each_side_may_have_an_embedding_and_the_decoders_is_tied():
    model = made(SMALL.replace(shared_embedding=False, tie_embeddings=True))
    assert model.decoder.token_embedding.weight is not model.encoder.token_embedding.weight
    assert model.unembedding.weight is model.decoder.token_embedding.weight


def test_the_decoder_may_have_other_heads_and_neurons():
    model = made(SMALL.replace(n_decoder_heads=2, d_decoder_ff=6, positions="relative"))
    reading, writing = model.encoder.blocks[0], model.decoder.blocks[0]
    assert (reading.attention.n_heads, reading.feedforward.up.out_features) == (4, 24)
    assert (writing.attention.n_heads, writing.feedforward.up.out_features) == (2, 6)
    assert writing.cross_attention.n_heads == 2
    assert model(tokens(3, 9), tokens(3, 7)).shape[:2] == (3, 7)


def test_every_parameter_gets_a_gradient():
    for positions in SCHEMES:
        model = made(SMALL.replace(positions=positions, activation="geglu", max_length=8))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.1 * torch.randn_like(parameter)
        model(tokens(3, 8), tokens(3, 8, seed=1)).square().sum().backward()
        silent = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()]
        assert silent == [], positions


def test_without_a_head_it_gives_the_final_state():
    model = made(SMALL.replace(head="none"))
    source, target = tokens(2, 4), tokens(2, 3)
    with capture(model, "decoder.final_state") as seen:
        state = run(model, False, source, target)
    assert torch.equal(state, seen["decoder.final_state"])


@pytest.mark.parametrize("change", [{"pooler": True}, {"head": "mlm"}, {"token_types": 2}])
def test_what_only_an_encoder_has_is_refused(change):
    with pytest.raises(ValueError, match="are for Encoder, got pooler="):
        EncoderDecoder(SMALL.replace(**change))


def test_a_memory_is_needed_by_blocks_with_cross_attention_only():
    model = made(SMALL)
    with pytest.raises(ValueError, match="needs a memory to read, and only such a block; got no"):
        model.decoder.stream(tokens(2, 3))
    with pytest.raises(ValueError, match="only such a block; got a memory"):
        model.encoder.stream(tokens(2, 3), memory=torch.zeros(2, 4, 16).double())
