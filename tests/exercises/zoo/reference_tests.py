"""Tests of the library as a student could write them: together they catch every bug of the zoo."""

import math

import torch
from measured_transformer import Config, Decoder, Encoder, EncoderDecoder, capture
from measured_transformer.inference.beams import BeamSearch
from measured_transformer.inference.generate import generate
from measured_transformer.inference.sampling import keep_top_k, keep_top_p, with_temperature
from measured_transformer.parts.attention import MultiHeadAttention
from measured_transformer.parts.feedforward import FeedForward
from measured_transformer.parts.norms import LayerNorm
from measured_transformer.parts.positions import (
    alibi_bias,
    alibi_slopes,
    frequencies,
    rotation,
    sinusoidal_encoding,
)
from measured_transformer.training.losses import cross_entropy
from measured_transformer.training.schedules import Constant
from torch.nn import functional as F


def small(**settings):
    return Config(**{"vocab": 11, "d_model": 16, "n_heads": 2, "n_layers": 2, **settings})


def decoder(**settings):
    torch.manual_seed(0)
    model = Decoder(small(**settings)).double().eval()
    for name, parameter in model.named_parameters():
        if "norm" in name or name.endswith("bias"):
            torch.nn.init.normal_(parameter, 1.0, 0.3)
    return model


TOKENS = torch.tensor([[1, 5, 3, 7, 2, 9], [4, 4, 8, 0, 6, 10]])


def test_attention_is_the_formula():
    torch.manual_seed(1)
    layer = MultiHeadAttention(12, 4, n_kv_heads=2, bias=False).double()
    x = torch.randn(2, 5, 12, dtype=torch.float64)
    expected = 0
    for head in range(4):
        rows, shared = slice(3 * head, 3 * head + 3), slice(3 * (head // 2), 3 * (head // 2) + 3)
        q, k, v = (
            x @ layer.query.weight[rows].T,
            x @ layer.key.weight[shared].T,
            x @ layer.value.weight[shared].T,
        )
        pattern = (q @ k.transpose(1, 2) / math.sqrt(3)).softmax(-1)
        expected = expected + pattern @ v @ layer.output.weight[:, rows].T
    assert torch.allclose(layer(x), expected)


def test_patterns_are_distributions():
    model = decoder()
    with capture(model, "blocks.0.attention.pattern", "blocks.1.attention.pattern") as seen:
        model(TOKENS)
    for pattern in seen.values():
        assert torch.allclose(pattern.sum(-1), torch.ones(()).double())
        assert (pattern.diagonal(dim1=-2, dim2=-1) > 0).all()
        assert pattern.triu(1).abs().max() == 0


def test_nobody_sees_ahead():
    model, changed = decoder(norm="layer"), TOKENS.clone()
    changed[:, -1] = (changed[:, -1] + 1) % 11
    assert torch.allclose(model(TOKENS)[:, :-1], model(changed)[:, :-1])
    assert not torch.allclose(model(TOKENS)[:, -1], model(changed)[:, -1])


def test_each_position_sees_itself():
    torch.manual_seed(1)
    layer = MultiHeadAttention(8, 2).double()
    x = torch.randn(1, 3, 8, dtype=torch.float64)
    first = layer.output(layer.value(x[:, :1]))
    assert torch.allclose(layer(x, causal=True)[:, :1], first)


def test_a_cache_changes_nothing():
    for scheme in ("rotary", "learned", "sinusoidal", "alibi"):
        model = decoder(positions=scheme)
        cache = model.make_cache()
        parts = [model(TOKENS[:, a:b], cache=cache) for a, b in ((0, 2), (2, 5), (5, 6))]
        assert torch.allclose(torch.cat(parts, 1), model(TOKENS))


def test_padding_changes_nothing():
    for scheme in ("rotary", "learned", "sinusoidal"):
        model = decoder(positions=scheme)
        padded = torch.cat((torch.zeros(2, 3, dtype=torch.int64), TOKENS), 1)
        real = torch.arange(9).expand(2, 9) >= 3
        assert torch.allclose(model(padded, padding_mask=real)[:, 3:], model(TOKENS))


def test_evaluation_is_not_random():
    model = decoder(dropout=0.5)
    assert torch.equal(model(TOKENS), model(TOKENS))


def test_a_translation_reads_its_source():
    torch.manual_seed(0)
    model = EncoderDecoder(small(positions="learned")).double().eval()
    assert not torch.allclose(model(TOKENS, TOKENS), model(TOKENS.flip(1), TOKENS))
    memory = model.encode(TOKENS.flip(1))
    other = model.encode(TOKENS)
    assert not torch.allclose(model.decode(TOKENS, memory), model.decode(TOKENS, other))


def test_sinusoids():
    assert torch.allclose(frequencies(8, base=100.0), 100.0 ** -(torch.arange(4.0).double() / 4))
    table = sinusoidal_encoding(3, 4, dtype=torch.float64)
    expected = [math.sin(2), math.cos(2), math.sin(0.02), math.cos(0.02)]
    assert torch.allclose(table[2], torch.tensor(expected, dtype=torch.float64))


def test_rotation_turns_the_pairs_that_it_says():
    one = torch.zeros(1, 1, 2, 4, dtype=torch.float64)
    one[..., 0] = 1
    turned = {
        pairing: rotation(2, 4, pairing=pairing, dtype=torch.float64).apply(one)[0, 0, 1]
        for pairing in ("interleaved", "halves")
    }
    assert torch.allclose(
        turned["interleaved"][:2], torch.tensor([math.cos(1), math.sin(1)]).double()
    )
    assert torch.allclose(turned["halves"][::2], torch.tensor([math.cos(1), math.sin(1)]).double())


def test_rotary_attention_knows_distances_alone():
    model = decoder(positions="rotary")
    where = torch.arange(6).expand(2, 6)
    assert torch.allclose(model(TOKENS, positions=where), model(TOKENS, positions=where + 7))


def test_alibi():
    bias = alibi_bias(torch.tensor([0.5, 0.25]), 4)
    assert (bias <= 0).all()
    assert bias[0, 3].tolist() == [-1.5, -1.0, -0.5, 0.0]
    assert alibi_slopes(6)[:4].tolist() == alibi_slopes(4).tolist()


def test_layer_norm():
    norm, x = (
        LayerNorm(4).double(),
        torch.tensor([[1.0, 2.0, 3.0, 6.0], [0.0, 0.0, 1.0, 9.0]]).double(),
    )
    y = norm(x)
    assert torch.allclose(y.mean(-1), torch.zeros(2).double(), atol=1e-9)
    assert torch.allclose(y.square().mean(-1), torch.ones(2).double(), atol=1e-4)


def test_a_block_adds_to_what_it_reads():
    model = decoder(norm="layer")
    with torch.no_grad():
        for block in model.blocks:
            for part in (block.attention.output, block.feedforward.down):
                part.weight.zero_()
                part.bias.zero_()
    with capture(model, "embedding", "final_state") as seen:
        model(TOKENS)
    assert torch.allclose(model.final_norm(seen["embedding"]), seen["final_state"])
    assert not torch.allclose(seen["embedding"], seen["final_state"])


def test_blocks_have_weights_of_their_own():
    model = decoder()
    before = model(TOKENS)
    with torch.no_grad():
        model.blocks[1].feedforward.down.weight.mul_(2.0)
    assert not torch.allclose(before, model(TOKENS))


def test_activations():
    x = torch.linspace(-3, 3, 7).double()
    network = FeedForward(7, 5, activation="gelu").double()
    expected = network.down(F.gelu(network.up(x[None, None])))
    assert torch.allclose(network(x[None, None]), expected, atol=1e-9)
    gated = FeedForward(7, 5, activation="swiglu").double()
    expected = gated.down(F.silu(gated.gate(x[None, None])) * gated.up(x[None, None]))
    assert torch.allclose(gated(x[None, None]), expected)


def test_the_loss_is_that_of_real_tokens():
    torch.manual_seed(0)
    logits, targets = torch.randn(2, 5, 7), torch.randint(7, (2, 5))
    scored = torch.arange(5).expand(2, 5) < torch.tensor([[5], [2]])
    ignored = targets.masked_fill(~scored, -100)
    for share in (0.0, 0.1):
        expected = F.cross_entropy(logits.transpose(1, 2), ignored, label_smoothing=share)
        assert torch.allclose(
            cross_entropy(logits, targets, scored, label_smoothing=share), expected
        )


def test_a_warm_up_begins_at_once():
    schedule = Constant(warmup=4)
    assert [schedule(step) for step in range(5)] == [0.25, 0.5, 0.75, 1.0, 1.0]


def test_sampling_changes_probabilities_as_it_says():
    logits = torch.tensor([0.1, 0.5, 0.15, 0.25]).log()
    assert with_temperature(logits, 0.1).softmax(-1).max() > 0.9
    assert torch.isfinite(keep_top_k(logits, 2)).tolist() == [False, True, False, True]
    assert torch.isfinite(keep_top_p(logits, 0.6)).tolist() == [False, True, False, True]


def test_beams_are_as_likely_as_they_say():
    model = decoder(positions="rotary")
    found = generate(model, TOKENS.tolist(), max_new_tokens=5, strategy=BeamSearch(3))
    for prompt, text, told in zip(TOKENS, found.tokens, found.log_probs, strict=True):
        whole = torch.cat((prompt, text))[None]
        log_probs = model(whole).log_softmax(-1)[0, len(prompt) - 1 : -1]
        assert torch.allclose(log_probs.gather(1, text[:, None])[:, 0], told)


def test_an_encoder_reads_both_ways():
    torch.manual_seed(0)
    model = Encoder(small()).double().eval()
    changed = TOKENS.clone()
    changed[:, -1] = (changed[:, -1] + 1) % 11
    assert not torch.allclose(model(TOKENS)[:, 0], model(changed)[:, 0])
