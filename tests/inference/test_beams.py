"""Beam search against the search of everything, against greedy decoding and against `transformers`."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from measured_transformer.inference.beams import BeamSearch
from measured_transformer.inference.generate import Greedy, generate
from measured_transformer.interop.huggingface import from_huggingface
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder_decoder import EncoderDecoder
from small_models import KINDS, PROMPTS, SMALL, START, made, start_of

STOP = 2


def search(model, prompts=PROMPTS, n=6, beams=4, penalty=1.0, stop=()):
    return generate(
        model,
        prompts,
        max_new_tokens=n,
        strategy=BeamSearch(beams, penalty) if beams else Greedy(),
        stop=stop,
        start=start_of(model),
    )


def scores_of_all_texts(model, prompt, vocab, n, penalty):
    """Every text that ends with its first stop token, or has length n without one before."""
    everything = torch.cartesian_prod(*[torch.arange(vocab)] * n)
    source = torch.tensor([prompt]).expand(len(everything), -1)
    with torch.no_grad():
        if isinstance(model, EncoderDecoder):
            target = torch.cat((torch.full_like(everything[:, :1], START), everything), dim=1)
            logits = model(source, target)[:, :-1]
        else:
            logits = model(torch.cat((source, everything), dim=1))[:, len(prompt) - 1 : -1]
    steps = logits.log_softmax(-1).gather(2, everything[:, :, None])[:, :, 0]
    scores = {}
    for text, log_probs in zip(everything.tolist(), steps.tolist(), strict=True):
        length = text.index(STOP) + 1 if STOP in text else n
        scores[tuple(text[:length])] = sum(log_probs[:length]) / length**penalty
    return scores


@pytest.mark.parametrize("penalty", [-1.0, 0.0, 0.7, 1.0, 2.5])
@pytest.mark.parametrize("kind", KINDS)
def test_enough_beams_find_the_best_of_all_texts(kind, penalty):
    vocab, n = 4, 3
    for seed in range(4):
        model = made(kind, SMALL.replace(vocab=vocab, d_model=8, n_heads=2), seed)
        ours = search(model, [[3, 1], [0]], n, beams=vocab**n, penalty=penalty, stop=STOP)
        for i, prompt in enumerate([[3, 1], [0]]):
            scored = scores_of_all_texts(model, prompt, vocab, n, penalty)
            best = max(scored, key=scored.__getitem__)
            assert tuple(ours.tokens[i].tolist()) == best
            total = float(ours.log_probs[i].sum()) / len(best) ** penalty
            assert total == pytest.approx(scored[best], abs=1e-10)
            assert ours.finished[i] == (best[-1] == STOP)


@pytest.mark.parametrize("kind", KINDS)
def test_one_beam_is_greedy(kind):
    model = made(kind)
    for penalty in (0.0, 1.0):
        ours, greedy = search(model, beams=1, penalty=penalty), search(model, beams=None)
        assert [a.tolist() for a in ours.tokens] == [b.tolist() for b in greedy.tokens]


def test_two_beams_find_what_greedy_misses():
    """A likely first token that leads to a flat distribution, and one less likely that leads to a sure one."""
    found = 0
    for seed in range(10):
        model = made(Decoder, seed=seed)
        ours, greedy = search(model, beams=4, penalty=0.0), search(model, beams=None)
        better = [
            float(a.sum() - b.sum()) for a, b in zip(ours.log_probs, greedy.log_probs, strict=True)
        ]
        found += sum(difference > 1e-6 for difference in better)
    assert found > 10


@settings(max_examples=10, deadline=None)
@given(kind=st.sampled_from(KINDS), seed=st.integers(0, 99), beams=st.integers(2, 30))
def test_without_a_penalty_all_continuations_beat_greedy(kind, seed, beams):
    """With two steps a beam for each first token makes the search complete, so it cannot do worse."""
    model = made(kind, seed=seed)
    ours = search(model, n=2, beams=max(beams, SMALL.vocab), penalty=0.0)
    greedy = search(model, n=2, beams=None)
    for a, b in zip(ours.log_probs, greedy.log_probs, strict=True):
        assert a.sum() >= b.sum() - 1e-12


def test_the_penalty_decides_about_length():
    model = made(Decoder)
    stop = search(model, beams=None, n=8).tokens[0][3].item()
    lengths = [
        sum(map(len, search(model, n=8, beams=5, penalty=penalty, stop=stop).tokens))
        for penalty in (-2.0, 0.0, 1.0, 4.0)
    ]
    assert lengths == sorted(lengths)
    assert lengths[0] < lengths[-1]


def hf_decoder(seed, vocab=19):
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(seed)
    theirs = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=vocab,
            n_embd=16,
            n_layer=2,
            n_head=2,
            n_positions=32,
            initializer_range=0.6,
            bos_token_id=None,
            eos_token_id=None,
        )
    )
    return theirs.double().eval(), None


def hf_encoder_decoder(seed, vocab=19):
    from transformers import T5Config, T5ForConditionalGeneration

    torch.manual_seed(seed)
    theirs = T5ForConditionalGeneration(
        T5Config(
            vocab_size=vocab,
            d_model=16,
            d_kv=8,
            d_ff=24,
            num_layers=2,
            num_heads=2,
            decoder_start_token_id=START,
            pad_token_id=0,
            eos_token_id=None,
            initializer_factor=3.0,
        )
    )
    return theirs.double().eval(), START


@pytest.mark.parametrize(
    ("beams", "penalty"), [(None, 1.0), (2, 1.0), (3, -0.5), (5, 0.0), (5, 2.0)]
)
@pytest.mark.parametrize("family", [hf_decoder, hf_encoder_decoder])
def test_texts_are_those_of_transformers(family, beams, penalty):
    prompts = torch.tensor([[3, 1, 4, 1], [5, 9, 2, 6], [5, 3, 5, 8]])
    ended = 0
    for seed in range(2):
        theirs, start = family(seed)
        model = from_huggingface(theirs)
        for stop in (None, [STOP], [STOP, 7, 11]):
            expected = theirs.generate(
                prompts,
                attention_mask=torch.ones_like(prompts),
                max_new_tokens=7,
                do_sample=False,
                num_beams=beams or 1,
                length_penalty=penalty if beams else None,
                early_stopping="never" if (beams or 1) > 1 else None,
                eos_token_id=stop,
                pad_token_id=0,
            )
            expected = expected[:, 1 if start is not None else prompts.shape[1] :]
            ours = generate(
                model,
                prompts,
                max_new_tokens=7,
                strategy=BeamSearch(beams, penalty) if beams else None,
                stop=stop or (),
                start=start,
            )
            ended += sum(ours.finished)
            for row, text in zip(expected.tolist(), ours.tokens, strict=True):
                assert row[: len(text)] == text.tolist()
                assert set(row[len(text) :]) <= {0, *(stop or ())[:1]}, "only padding follows"
    assert ended or penalty > 1, "some texts ended by a stop token"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_beams": 0}, "n_beams must be a whole number of at least 1, got 0"),
        ({"length_penalty": float("nan")}, "length_penalty must be a number"),
    ],
)
def test_numbers_out_of_range_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        BeamSearch(**arguments)
