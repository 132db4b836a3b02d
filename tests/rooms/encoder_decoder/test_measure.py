"""What the chapter on encoder and decoder measures, on models and answers that are known."""

from dataclasses import replace

import torch
from measured_book.evidence.results import load_results
from measured_book.measuring.measurement import measurements_of
from measured_book.measuring.state import HOLDS, standing
from measured_book.rooms.encoder_decoder.measure import (
    LENGTHS,
    NUMBERS,
    READS,
    REVERSAL,
    SMALL,
    cross_by_hand,
    drawn_cross_attention,
    drawn_futures,
    drawn_heads,
    gaps,
    gold_alignment,
    shares_right,
    shown_numbers,
    smallest_reach,
)
from measured_transformer.inference.generate import generate
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.models.encoder_decoder import EncoderDecoder
from measured_transformer.tasks.numbers import number_words
from measured_transformer.training.loop import make_model
from measured_transformer.training.seeding import make_generator
from torch.nn import functional as F

RESULTS = load_results("encoder_decoder")


def test_every_result_is_of_this_code() -> None:
    for one in measurements_of("encoder_decoder").values():
        assert standing(one).state in HOLDS, standing(one).why


def test_cross_attention_by_hand_is_that_of_pytorch() -> None:
    layer = EncoderDecoder(SMALL).decoder.blocks[0].cross_attention
    own = torch.nn.MultiheadAttention(16, 2, batch_first=True)
    with torch.no_grad():
        own.in_proj_weight.copy_(
            torch.cat([layer.query.weight, layer.key.weight, layer.value.weight])
        )
        own.in_proj_bias.copy_(torch.cat([layer.query.bias, layer.key.bias, layer.value.bias]))
        own.out_proj.weight.copy_(layer.output.weight)
        own.out_proj.bias.copy_(layer.output.bias)
        states, memory = torch.randn(1, 4, 16), torch.randn(1, 9, 16)
        expected, _ = own(states, memory, memory)
        torch.testing.assert_close(cross_by_hand(layer, states, memory), expected)


def test_identities_hold_and_their_controls_fail() -> None:
    cross, futures, heads = drawn_cross_attention(7), drawn_futures(7), drawn_heads(7)
    for found, exact, control in (
        (cross, "formula", "exchanged"),
        (cross, "apart", "together"),
        (futures, "reading_masked", "reading_open"),
        (futures, "alone_masked", "alone_open"),
        (heads, "sum", "logits_sum"),
        (heads, "log", "sigmoid"),
        (heads, "tied", "untied"),
    ):
        assert found[exact] < 1e-12
        assert found[control] > 1e-3
    assert cross["gradient"] > 0
    assert smallest_reach(Encoder(SMALL).double(), 0) > 0
    assert smallest_reach(Decoder(SMALL).double(), 0) == 0


def test_gold_links_join_words_of_one_meaning() -> None:
    batch = replace(NUMBERS, part="test").batch(make_generator(0, "evaluation"), 40)
    gold = gold_alignment(batch, "test")
    meaning = {"ein": "one", "eins": "one", "zwei": "two", "hundert": "hundred", "acht": "eight"}
    words = NUMBERS.words()
    seen = 0
    for row, source, target in zip(gold, batch.source, batch.targets, strict=True):
        for place, token in zip(row.tolist(), target.tolist(), strict=True):
            word = words[token] if token < len(words) else ""
            if place < 0:
                assert word in ("", "und")
            elif word in meaning:
                assert words[int(source[place])] == meaning[word]
                seen += 1
    assert seen > 20


def test_shown_numbers_were_not_trained_on() -> None:
    trained = set(NUMBERS.numbers())
    for number in shown_numbers():
        assert number not in trained
        assert len(number_words(number, "en")) == len(number_words(number, "de")) == 7


def test_what_a_model_writes_by_itself_is_right_at_every_token_given_those_before() -> None:
    config = Config(vocab=REVERSAL.vocab, d_model=16, n_layers=1, n_heads=2)
    model = make_model(config, causal=True, source=True, seed=0).eval()
    batch = REVERSAL.batch(make_generator(0, "evaluation"), 20)
    assert batch.source is not None
    assert batch.source_padding_mask is not None
    sources = [
        row[real].tolist()
        for row, real in zip(batch.source, batch.source_padding_mask, strict=True)
    ]
    written = generate(
        model, sources, max_new_tokens=14, stop=REVERSAL.end, start=REVERSAL.start
    ).tokens
    targets = torch.stack(
        [F.pad(row, (0, 14 - len(row)), value=REVERSAL.padding) for row in written]
    )
    scored = torch.stack([torch.arange(14) < len(row) for row in written])
    inputs = torch.cat([batch.inputs[:, :1], targets[:, :-1]], 1)
    own = replace(batch, inputs=inputs, targets=targets, scored=scored, padding_mask=None)
    assert shares_right(model, own) == (1, 1)
    wrong = replace(own, targets=torch.where(torch.arange(14) == 0, (targets + 1) % 13, targets))
    assert shares_right(model, wrong)[1] == 0


def test_without_cross_attention_the_source_says_nothing() -> None:
    config = Config(vocab=REVERSAL.vocab, d_model=16, n_layers=1, n_heads=2)
    model = make_model(config, causal=True, source=True, seed=0).eval()
    batch = REVERSAL.batch(make_generator(0, "evaluation"), 20)
    other = replace(batch, source=batch.source.flip(0))
    mask = replace(other, source_padding_mask=batch.source_padding_mask.flip(0))
    assert shares_right(model, batch, without=True) == shares_right(model, mask, without=True)


def test_each_side_gets_the_same_sequences() -> None:
    left, right, both = (
        gaps(side).batch(make_generator(3, "evaluation"), 9) for side in ("left", "right", "both")
    )
    assert torch.equal(left.inputs, both.inputs)
    assert torch.equal(left.targets, right.targets.flip(1))
    assert gaps("left").causal
    assert not gaps("both").causal


def test_controls_are_solved() -> None:
    worth, fill = RESULTS["worth"], RESULTS["fill"]
    assert float(worth.reversal.sel(reads="all").min()) > 0.9
    assert float(worth.numbers.sel(fewer="all").min()) > 0.9
    assert float(worth.reversal.sel(reads="none").max()) < 0.01
    assert tuple(worth.reads.values) == READS
    assert tuple(worth.length.values) == LENGTHS
    assert float((fill.ideal - fill.accuracy).min()) > -0.05
