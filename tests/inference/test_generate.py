"""What is generated: the same as without a cache, for each prompt as if it were alone, and nothing is left."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from measured_transformer.inference.beams import BeamSearch
from measured_transformer.inference.generate import Greedy, Sampling, generate
from measured_transformer.inference.windows import SlidingWindow
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.models.encoder_decoder import EncoderDecoder
from scipy import stats
from small_models import (
    KINDS,
    PROMPTS,
    SCHEMES,
    SMALL,
    VOCAB,
    greedy,
    made,
    next_log_probs,
    start_of,
)


def texts(generated):
    return [row.tolist() for row in generated.tokens]


def sampling(seed=0, **arguments):
    return Sampling(torch.Generator().manual_seed(seed), **arguments)


def written(model, prompts=PROMPTS, n=12, **arguments):
    return generate(model, prompts, max_new_tokens=n, start=start_of(model), **arguments)


@pytest.mark.parametrize("n_kv_heads", [4, 2, 1])
@pytest.mark.parametrize("positions", SCHEMES)
@pytest.mark.parametrize("kind", KINDS)
def test_greedy_text_is_that_of_full_calls_without_a_cache(kind, positions, n_kv_heads):
    model = made(kind, SMALL.replace(positions=positions, n_kv_heads=n_kv_heads))
    ours = written(model)
    assert ours.finished == (False,) * len(PROMPTS)
    for i, prompt in enumerate(PROMPTS):
        expected, log_probs = greedy(model, prompt, 12)
        assert ours.tokens[i].tolist() == expected
        torch.testing.assert_close(
            ours.log_probs[i], torch.tensor(log_probs, dtype=torch.float64), rtol=0, atol=1e-10
        )
    assert len({tuple(text) for text in texts(ours)}) > 1, "the texts depend on the prompts"


@pytest.mark.parametrize(
    "changes",
    [
        {"placement": "post", "norm": "rms", "activation": "swiglu"},
        {"tie_embeddings": True, "logit_scale": 0.25, "d_head": 6},
        {"rotary_pairing": "halves", "positions": "rotary", "head_bias": True, "bias": False},
        {"embedding_norm": True, "n_layers": 3},
        {"head": "mlm"},
    ],
    ids=lambda changes: ",".join(changes),
)
@pytest.mark.parametrize("kind", KINDS)
def test_other_architectures_write_what_full_calls_say(kind, changes):
    if kind is EncoderDecoder and "head" in changes:
        changes = {"n_decoder_layers": 1}
    model = made(kind, SMALL.replace(**changes))
    assert texts(written(model)) == [greedy(model, prompt, 12)[0] for prompt in PROMPTS]


@settings(max_examples=25, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    positions=st.sampled_from(SCHEMES),
    prompts=st.lists(
        st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=9), min_size=1, max_size=4
    ),
    chunk=st.none() | st.integers(1, 10),
    strategy=st.sampled_from([Greedy(), BeamSearch(3), BeamSearch(2, 0.0)]),
    stop=st.lists(st.integers(0, VOCAB - 1), max_size=4),
)
def test_each_prompt_is_continued_as_if_it_were_alone(
    kind, positions, prompts, chunk, strategy, stop
):
    model = made(kind, SMALL.replace(positions=positions, n_kv_heads=2))

    together = written(model, prompts, 8, strategy=strategy, stop=stop, chunk=chunk)
    for i, prompt in enumerate(prompts):
        alone = written(model, [prompt], 8, strategy=strategy, stop=stop)
        assert together.tokens[i].tolist() == alone.tokens[0].tolist()
        assert together.finished[i] == alone.finished[0]
        torch.testing.assert_close(together.log_probs[i], alone.log_probs[0], rtol=0, atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_ends_with_its_stop_token(kind):
    model = made(kind)
    free = texts(written(model))
    stop = free[0][4]
    ours = written(model, stop=stop)
    for text, whole, finished in zip(texts(ours), free, ours.finished, strict=True):
        assert finished == (stop in whole)
        assert text == (whole[: whole.index(stop) + 1] if finished else whole)
    assert ours.finished[0]
    assert [len(row) for row in ours.log_probs] == [len(row) for row in ours.tokens]
    several = written(model, stop=[free[0][4], free[1][2]])
    assert several.finished[:2] == (True, True)


def test_writing_ends_when_all_texts_have():
    model = made(Decoder)
    stops = [text[2] for text in texts(written(model))]
    calls = []
    model.final_state.watchers = (lambda value: calls.append(value.shape[1]),)
    ours = written(model, n=20, stop=stops)
    assert all(ours.finished)
    assert len(calls) == max(map(len, ours.tokens)) <= 3


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_gives_the_same_text(kind):
    model = made(kind)
    one = written(model, strategy=sampling(3))
    assert texts(one) == texts(written(model, strategy=sampling(3)))
    assert texts(one) != texts(written(model, strategy=sampling(4)))
    torch.manual_seed(11)
    before = torch.get_rng_state()
    written(model, strategy=sampling(3))
    assert torch.equal(torch.get_rng_state(), before), "no other generator is used"
    longer = texts(written(model, n=20, strategy=sampling(3)))
    assert [text[:12] for text in longer] == texts(one)


def test_stopped_texts_do_not_change_the_others():
    model = made(Decoder)
    free = texts(written(model, strategy=sampling(5)))
    stop = free[1][1]
    for text, whole in zip(
        texts(written(model, strategy=sampling(5), stop=stop)), free, strict=True
    ):
        assert text == (whole[: whole.index(stop) + 1] if stop in whole else whole)


@pytest.mark.parametrize(
    "arguments", [{}, {"temperature": 0.5}, {"top_k": 3}, {"top_p": 0.6}], ids=str
)
def test_second_tokens_follow_the_model(arguments):
    """The pair of the first two tokens has the product of the model's probabilities."""
    model = made(Decoder, SMALL.replace(vocab=4, d_model=8, n_heads=2))
    n, prompt = 4000, [2, 0, 1]
    strategy = sampling(1, **arguments)
    drawn = torch.stack(written(model, [prompt] * n, 2, strategy=strategy).tokens)
    counts = (4 * drawn[:, 0] + drawn[:, 1]).bincount(minlength=16)

    def probabilities(*text):
        log_probs = next_log_probs(model, prompt, list(text))
        return sampling(**arguments).logits(log_probs[None])[0].softmax(-1)

    expected = n * torch.cat([probabilities()[i] * probabilities(i) for i in range(4)])
    assert counts[expected == 0].sum() == 0
    likely = expected > 0
    assert stats.chisquare(counts[likely], expected[likely]).pvalue > 0.01


def test_log_probs_are_the_models_own_whatever_the_strategy():
    model = made(Decoder)
    for strategy in (sampling(2, temperature=0.7, top_k=9, top_p=0.95), BeamSearch(3), None):
        ours = written(model, strategy=strategy)
        for prompt, text, log_probs in zip(PROMPTS, texts(ours), ours.log_probs, strict=True):
            for i, token in enumerate(text):
                expected = next_log_probs(model, prompt, text[:i])[token]
                torch.testing.assert_close(log_probs[i], expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("strategy", [Greedy(), BeamSearch(3)], ids=["greedy", "beams"])
def test_cache_bytes_are_those_of_the_formula(strategy, dtype):
    rows = len(PROMPTS) * (3 if isinstance(strategy, BeamSearch) else 1)
    config = SMALL.replace(n_kv_heads=2, n_layers=2, n_decoder_layers=3)
    longest, new, size = max(map(len, PROMPTS)), 6, dtype.itemsize
    ours = written(made(Decoder, config).to(dtype), n=new, strategy=strategy)
    assert ours.cache_bytes == 2 * 2 * rows * 2 * (longest + new - 1) * 4 * size
    ours = written(made(EncoderDecoder, config).to(dtype), n=new, strategy=strategy)
    assert ours.cache_bytes == 2 * 3 * rows * 2 * (new + longest) * 4 * size


@pytest.mark.parametrize("chunk", [1, 2, 4, 50])
@pytest.mark.parametrize("kind", KINDS)
def test_reading_in_chunks_changes_nothing(kind, chunk):
    model = made(kind, SMALL.replace(positions="rotary"))
    whole, parts = written(model), written(model, chunk=chunk)
    assert texts(whole) == texts(parts)
    for a, b in zip(whole.log_probs, parts.log_probs, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-11)


def test_no_call_is_longer_than_a_chunk():
    model = made(Decoder)
    lengths = []
    model.embedding.watchers = (lambda value: lengths.append(value.shape[1]),)
    written(model, n=3, chunk=4)
    assert lengths == [4, 4, 1, 1, 1]


def test_a_decoder_can_start_from_several_tokens():
    model = made(EncoderDecoder)
    first = written(model, n=4)
    for prompt, text in zip(PROMPTS, texts(first), strict=True):
        rest = generate(model, [prompt], max_new_tokens=3, start=[1, text[0]])
        assert texts(rest) == [text[1:4]]


def test_prompts_may_be_tensors():
    model = made(Decoder)
    expected = texts(written(model))
    assert texts(written(model, [torch.tensor(prompt) for prompt in PROMPTS])) == expected
    block = torch.tensor([[1, 2, 3], [4, 5, 6]], dtype=torch.int32)
    assert texts(written(model, block)) == texts(written(model, block.tolist()))


@pytest.mark.usefixtures("unhooked")
@pytest.mark.parametrize("kind", KINDS)
def test_numbers_may_come_from_numpy_and_torch(kind):
    model, start = made(kind), start_of(made(kind))
    plain = generate(model, PROMPTS, max_new_tokens=6, stop=[4, 7], start=start)
    for array in (np.array, torch.tensor):
        prompts = [array(prompt) for prompt in PROMPTS]
        ours = generate(
            model,
            prompts,
            max_new_tokens=np.int64(6),
            stop=array([4, 7]),
            start=None if start is None else array(start),
            chunk=np.int32(2),
        )
        assert texts(ours) == texts(plain)
    alone = generate(model, PROMPTS, max_new_tokens=6, stop=np.int64(4), start=start)
    assert texts(alone) == texts(generate(model, PROMPTS, max_new_tokens=6, stop=4, start=start))
    without = generate(model, PROMPTS, max_new_tokens=6, stop=None, start=start)
    assert texts(without) == texts(generate(model, PROMPTS, max_new_tokens=6, start=start))


def test_each_module_keeps_its_mode_and_nothing_is_left_behind():
    model = made(Decoder, SMALL.replace(dropout=0.5))
    expected = texts(written(model))
    model.train()
    model.blocks[0].eval()
    modes = [module.training for module in model.modules()]
    state = {name: value.clone() for name, value in model.state_dict().items()}
    kept = [set(vars(module)) for module in model.modules()]
    assert texts(written(model)) == expected, "no dropout while writing"
    assert [module.training for module in model.modules()] == modes
    with pytest.raises(ValueError, match="empty"):
        written(model, [[]])
    with intervene(model, {"logits": _fail}), pytest.raises(RuntimeError, match="on purpose"):
        written(model)
    assert [module.training for module in model.modules()] == modes
    assert [set(vars(module)) for module in model.modules()] == kept
    assert all(torch.equal(state[name], value) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def _fail(value):
    raise RuntimeError("on purpose")


def test_the_model_and_its_text_are_fit_for_training_afterwards():
    for positions in SCHEMES:
        model = made(Decoder, SMALL.replace(positions=positions))
        text = written(model, n=6).tokens[0][None]
        assert not text.is_inference()
        model(text).logsumexp(-1).sum().backward()
        assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize("kind", KINDS)
def test_it_works_inside_capture_and_intervene(kind):
    model = made(kind)
    expected = texts(written(model))
    with capture(model) as seen:
        assert texts(written(model)) == expected
    names = [name for name in seen if name.endswith("attention.pattern")]
    assert names
    for name in names:
        torch.testing.assert_close(seen[name].sum(-1), torch.ones_like(seen[name][..., 0]))
    favourite = torch.full((VOCAB,), -5.0)
    favourite[7] = 5.0
    with intervene(model, {"logits": favourite}):
        assert texts(written(model, n=3)) == [[7] * 3] * len(PROMPTS)
    assert texts(written(model)) == expected


def test_half_precision_writes_too():
    model = made(Decoder).to(torch.bfloat16)
    ours = written(model, strategy=sampling(0))
    assert all(row.dtype == torch.float32 and row.isfinite().all() for row in ours.log_probs)


def test_results_and_strategies_are_frozen():
    result = written(made(Decoder), n=1)
    for frozen, name in ((result, "tokens"), (sampling(), "top_p"), (BeamSearch(), "n_beams")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(frozen, name, 1)


@pytest.mark.usefixtures("unhooked")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"prompts": []}, "expected at least one prompt"),
        ({"prompts": [[1], []]}, "prompt 1 is empty"),
        ({"prompts": [1, 2]}, "a single prompt needs a list around it"),
        ({"prompts": [[0.5]]}, "whole numbers"),
        ({"prompts": [[1, VOCAB]]}, rf"0..{VOCAB - 1} .* got values from 1 to {VOCAB}"),
        ({"prompts": [[-1]]}, "got values from -1"),
        ({"max_new_tokens": 0}, "max_new_tokens must be a whole number of at least 1, got 0"),
        ({"chunk": 0}, "chunk must be a whole number of at least 1, got 0"),
        ({"stop": VOCAB}, rf"stop must lie in 0..{VOCAB - 1}"),
        ({"stop": [1, -1]}, "stop must lie"),
        ({"stop": "."}, "stop must hold whole numbers, got what is no tensor: '.'"),
        ({"stop": 1.5}, "stop must hold whole numbers, got torch.float32"),
        ({"prompts": "abc"}, "got the text 'abc', and a Decoder has no tokenizer"),
        ({"prompts": 3}, "prompts must be a list of sequences of tokens, got 3"),
        ({"prompts": [[True]]}, "prompt 0 must hold whole numbers, got torch.bool"),
        ({"strategy": "beams"}, r"strategy must be Greedy\(\), .* got 'beams'"),
        ({"strategy": Greedy}, "strategy must be .* got <class"),
        ({"max_new_tokens": 2.0}, "max_new_tokens must be a whole number of at least 1, got 2.0"),
        ({"start": 0}, "start is for an EncoderDecoder, got 0"),
        ({"prompts": [[1] * 30], "max_new_tokens": 4}, "prompt \\+ max_new_tokens <= 33"),
    ],
)
def test_what_cannot_be_continued_is_refused(arguments, message):
    model = made(Decoder, SMALL.replace(positions="learned"))
    arguments = {"prompts": PROMPTS, "max_new_tokens": 3, **arguments}
    with pytest.raises(ValueError, match=message):
        generate(model, arguments.pop("prompts"), **arguments)


@pytest.mark.usefixtures("unhooked")
def test_models_that_do_not_write_are_refused():
    with pytest.raises(ValueError, match="got Encoder"):
        generate(Encoder(SMALL), PROMPTS, max_new_tokens=1)
    with pytest.raises(ValueError, match="head is 'none'"):
        generate(Decoder(SMALL.replace(head="none")), PROMPTS, max_new_tokens=1)
    with pytest.raises(ValueError, match="give start"):
        generate(made(EncoderDecoder), PROMPTS, max_new_tokens=1)
    with pytest.raises(ValueError, match=rf"0..{VOCAB - 1}"):
        generate(made(EncoderDecoder), PROMPTS, max_new_tokens=1, start=VOCAB)


def test_learned_positions_are_used_to_the_last():
    model = made(
        Decoder,
        Config(vocab=5, d_model=8, n_layers=1, n_heads=2, positions="learned", max_length=6),
    )
    ours = generate(model, [[1, 2, 3, 4]], max_new_tokens=3)
    assert texts(ours) == [greedy(model, [1, 2, 3, 4], 3)[0]]


# --- texts -----------------------------------------------------------------------------------------


class WithBytes:
    """A model with the bytes of a text as its tokens."""

    def __init__(self, model):
        self.model = model

    def encode(self, text):
        return list(text.encode())


class WithTexts(WithBytes):
    """One that writes them, too."""

    def decode(self, tokens):
        return bytes(tokens).decode(errors="replace")


@pytest.mark.parametrize("prompts", ["The cat", ["The cat"], ["The cat", "A"]])
def test_a_model_with_its_tokenizer_continues_texts(prompts):
    torch.manual_seed(0)
    model = Decoder(Config(vocab=256, d_model=16, n_layers=1, n_heads=2)).eval()
    given_texts = [prompts] if isinstance(prompts, str) else prompts
    options = {"max_new_tokens": 4, "stop": 3}
    expected = generate(model, [list(text.encode()) for text in given_texts], **options)
    assert expected.texts == ()
    written = generate(WithTexts(model), prompts, **options)
    for ours, theirs in zip(written.tokens, expected.tokens, strict=True):
        assert torch.equal(ours, theirs)
    assert written.texts == tuple(
        bytes(row.tolist()).decode(errors="replace") for row in expected.tokens
    )
    assert generate(WithBytes(model), prompts, **options).texts == ()
    holds = WithBytes(model)
    holds.tokenizer = WithTexts(model)
    assert generate(holds, prompts, **options).texts == written.texts
    by_tokens = generate(WithTexts(model), [list(given_texts[0].encode())], **options)
    assert by_tokens.texts[0] == written.texts[0]


def test_every_option_is_handed_on():
    torch.manual_seed(0)
    both = EncoderDecoder(Config(vocab=256, d_model=16, n_layers=1, n_heads=2)).eval()
    strategy = lambda: Sampling(torch.Generator().manual_seed(4))  # noqa: E731
    options = {"max_new_tokens": 5, "start": [7, 8], "chunk": 1}
    expected = generate(both, [list(b"ab")], strategy=strategy(), **options)
    written = generate(WithTexts(both), "ab", strategy=strategy(), **options)
    assert torch.equal(written.tokens[0], expected.tokens[0])
    model = Decoder(Config(vocab=256, d_model=16, n_layers=1, n_heads=2, positions="rotary"))
    options = {"max_new_tokens": 5, "window": SlidingWindow(4)}
    expected = generate(model, [list(b"abcdefgh")], **options)
    assert torch.equal(
        generate(WithTexts(model), "abcdefgh", **options).tokens[0], expected.tokens[0]
    )
