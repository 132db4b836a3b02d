"""Circuits whose weights are written by hand: the answer is known before the model runs."""

import torch
from measured_transformer.internals.at import at
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.parts.attention import MultiHeadAttention
from measured_transformer.parts.block import Block
from measured_transformer.parts.feedforward import FeedForward
from torch import nn

SHARP = 60.0


def cross_attention():
    """Ask with the first four dimensions, match the memory's first four, bring its last four."""
    attention = MultiHeadAttention(8, 1, d_head=4, bias=False, scale=1.0).double()
    code, content = torch.eye(8, dtype=torch.float64)[:4], torch.eye(8, dtype=torch.float64)[4:]
    with torch.no_grad():
        attention.query.weight.copy_(SHARP * code)
        attention.key.weight.copy_(code)
        attention.value.weight.copy_(content)
        attention.output.weight.copy_(content.T)
    return attention


def memory():
    codes = torch.eye(4, dtype=torch.float64)[[2, 0, 3, 1]]
    contents = torch.tensor([[5.0, 1, 0, 0], [0, 6, 1, 0], [0, 0, 7, 1], [1, 0, 0, 8]]).double()
    return torch.cat((codes, contents), dim=1)[None]


def asked(*codes):
    return torch.cat((torch.eye(4).double()[list(codes)], torch.zeros(len(codes), 4).double()), 1)[
        None
    ]


@torch.no_grad()
def test_cross_attention_fetches_what_is_asked_for():
    attention = cross_attention()
    fetched = attention(asked(3, 2, 2, 0, 1), memory())[0, :, 4:]
    rows = [2, 0, 0, 1, 3]  # where those codes stand in the memory
    torch.testing.assert_close(fetched, memory()[0, rows, 4:], rtol=0, atol=1e-12)
    with capture(attention, "pattern") as seen:
        attention(asked(3, 2), memory())
    expected = torch.eye(4, dtype=torch.float64)[[2, 0]]
    torch.testing.assert_close(seen["pattern"][0, 0], expected, rtol=0, atol=1e-12)


@torch.no_grad()
def test_cross_attention_cannot_fetch_padding():
    real = torch.tensor([[True, True, False, True]])
    fetched = cross_attention()(asked(3), memory(), padding_mask=real)[0, 0, 4:]
    torch.testing.assert_close(fetched, memory()[0, [0, 1, 3], 4:].mean(0), rtol=0, atol=1e-12)


@torch.no_grad()
def test_a_block_adds_what_it_fetched_between_attention_and_feedforward():
    silent, network = MultiHeadAttention(8, 1, bias=False).double(), FeedForward(8, 3).double()
    silent.output.weight.zero_()
    for parameter in network.down.parameters():
        parameter.zero_()
    block = Block(
        silent,
        network,
        nn.Identity(),
        nn.Identity(),
        cross_attention=cross_attention(),
        cross_attention_norm=nn.Identity(),
    )
    x = asked(1, 0)
    with capture(block, "residual_*") as seen:
        out = block(x, memory())
    fetched = torch.cat((x[0, :, :4], memory()[0, [3, 1], 4:]), dim=1)[None]
    assert torch.equal(seen["residual_mid"], x)
    torch.testing.assert_close(seen["residual_cross"], fetched, rtol=0, atol=1e-12)
    assert torch.equal(out, seen["residual_cross"])


VOCAB, LENGTH = 9, 16
# The stream is split into parts: this token, this position, the token before, the prediction.
TOKEN, PLACE = slice(0, VOCAB), slice(VOCAB, VOCAB + LENGTH)
BEFORE = slice(PLACE.stop, PLACE.stop + VOCAB)
NEXT = slice(BEFORE.stop, BEFORE.stop + VOCAB)


def induction_model():
    """Layer 0 notes the token before; layer 1 looks where the present token was the one before."""
    model = Decoder(
        Config(
            vocab=VOCAB,
            d_model=NEXT.stop,
            n_layers=2,
            n_heads=1,
            d_head=LENGTH,
            d_ff=1,
            max_length=LENGTH,
            positions="learned",
            norm="none",
            bias=False,
            attention_scale=1.0,
            embedding_scale=1.0,
        )
    ).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.token_embedding.weight[:, TOKEN] = torch.eye(VOCAB).double()
        model.positions.table[:, PLACE] = torch.eye(LENGTH).double()
        model.unembedding.weight[:, NEXT] = torch.eye(VOCAB).double()
        note, look = model.blocks[0].attention, model.blocks[1].attention
        back = torch.eye(LENGTH).double().roll(-1, dims=0)  # from position p to p - 1
        back[-1] = 0
        write(note.query, PLACE, SHARP * back)
        write(note.key, PLACE, torch.eye(LENGTH).double())
        for head, goal in ((note, BEFORE), (look, NEXT)):
            head.value.weight[:VOCAB, TOKEN] = torch.eye(VOCAB).double()
            head.output.weight[goal, :VOCAB] = torch.eye(VOCAB).double()
        look.query.weight[:VOCAB, TOKEN] = SHARP * torch.eye(VOCAB).double()
        look.key.weight[:VOCAB, BEFORE] = torch.eye(VOCAB).double()
    return model


def write(linear, part, matrix):
    linear.weight[:, part] = matrix


def repeated():
    """A start token, seven different tokens, and the same seven again."""
    once = torch.stack([torch.randperm(8)[:7] + 1 for _ in range(3)])
    return torch.cat((torch.zeros(3, 1, dtype=torch.int64), once, once), dim=1)


@torch.no_grad()
def test_an_induction_circuit_repeats_what_it_saw():
    torch.manual_seed(0)
    model, x = induction_model(), repeated()
    with capture(model, "*.pattern") as seen:
        logits = model(x)
    assert torch.equal(logits[:, 8:-1].argmax(-1), x[:, 9:])
    torch.testing.assert_close(model(x), logits, rtol=0, atol=1e-12)
    assert (seen["blocks.0.attention.pattern"][:, 0].diagonal(-1, 1, 2) > 1 - 1e-12).all()
    # From the second time that a token comes to the place after its first.
    assert (seen["blocks.1.attention.pattern"][:, 0].diagonal(-6, 1, 2)[:, 2:] > 1 - 1e-12).all()


@torch.no_grad()
def test_the_circuit_needs_both_heads_and_the_same_holds_in_a_cache():
    torch.manual_seed(0)
    model, x = induction_model(), repeated()
    whole = model(x)
    for layer in (0, 1):
        without = at(0.0, heads=0)
        with intervene(model, {f"blocks.{layer}.attention.head_outputs": without}):
            right = model(x)[:, 8:-1].argmax(-1) == x[:, 9:]
        assert right.float().mean() < 0.5
    # Erasing one note blinds the circuit at one place only.
    erased = at(0.0, positions=4)
    with intervene(model, {"blocks.0.attention.head_outputs": erased}):
        right = model(x)[:, 8:-1].argmax(-1) == x[:, 9:]
    assert (~right).sum(0).nonzero().flatten().tolist() == [2]  # whoever looks for token 3
    cache = model.make_cache()
    pieces = [model(x[:, i : i + 5], cache=cache) for i in range(0, 15, 5)]
    torch.testing.assert_close(torch.cat(pieces, dim=1), whole, rtol=0, atol=1e-12)
