"""No strategy chooses a token among logits that are no finite numbers, and a small temperature is greedy."""

import math

import numpy as np
import pytest
import torch
from measured_transformer.inference.beams import BeamSearch
from measured_transformer.inference.generate import Greedy, generate
from measured_transformer.inference.sampling import (
    Sampling,
    draw,
    keep_top_k,
    keep_top_p,
    require_finite,
    with_temperature,
)
from measured_transformer.inference.serving import serve
from measured_transformer.inference.speculative import Speculative
from measured_transformer.internals.intervene import intervene
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder_decoder import EncoderDecoder

CONFIG = Config(vocab=13, d_model=16, n_layers=1, n_heads=2, positions="rotary")
PROMPTS = [[1, 2], [3]]


def made(kind=Decoder, seed=0):
    torch.manual_seed(seed)
    return kind(CONFIG).eval()


def numbers():
    return torch.Generator().manual_seed(0)


STRATEGIES = {
    "greedy": Greedy,
    "default": lambda: None,
    "sampling": lambda: Sampling(numbers()),
    "cold": lambda: Sampling(numbers(), temperature=1e-30),
    "top-k": lambda: Sampling(numbers(), top_k=2),
    "top-p": lambda: Sampling(numbers(), top_p=0.5),
    "beams": lambda: BeamSearch(3),
    "speculative": lambda: Speculative(made(seed=1)),
    "speculative sampling": lambda: Speculative(made(seed=1), Sampling(numbers())),
}
BAD = [math.nan, math.inf, -math.inf]


OF_BOTH = [name for name in STRATEGIES if "speculative" not in name]  # a draft is for a Decoder


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize(
    ("name", "kind"),
    [*((name, Decoder) for name in STRATEGIES), *((name, EncoderDecoder) for name in OF_BOTH)],
)
def test_every_strategy_refuses(name, kind, bad):
    model, start = made(kind), 0 if kind is EncoderDecoder else None

    def spoilt(logits):
        logits[..., 5] = bad
        return logits

    with (
        intervene(model, {"logits": spoilt}),
        pytest.raises(ValueError, match=f"must be finite.*got {bad}"),
    ):
        generate(model, PROMPTS, max_new_tokens=4, strategy=STRATEGIES[name](), start=start)


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("strategy", ["greedy", "sampling"])
def test_serving_refuses(strategy, bad):
    model = made()
    with torch.no_grad():
        model.unembedding.weight[3] = bad
    with pytest.raises(ValueError, match="must be finite"):
        serve(model, PROMPTS, max_new_tokens=3, strategy=STRATEGIES[strategy](), n_pages=8)


def test_a_draft_that_is_broken_is_refused():
    draft = made(seed=1)
    with torch.no_grad():
        draft.unembedding.weight.fill_(math.nan)
    with pytest.raises(ValueError, match="must be finite"):
        generate(made(), PROMPTS, max_new_tokens=4, strategy=Speculative(draft))


@pytest.mark.parametrize("after", range(5))
def test_a_failure_at_any_step_is_seen(after):
    model, seen = made(), []

    def late(logits):
        seen.append(1)
        return logits if len(seen) <= after else logits * math.nan

    with intervene(model, {"logits": late}), pytest.raises(ValueError, match="must be finite"):
        generate(model, PROMPTS, max_new_tokens=5)


def test_an_overflow_of_half_precision_is_named():
    model = made()
    with torch.no_grad():
        model.unembedding.weight.mul_(1e6)
    with pytest.raises(ValueError, match="half precision"):
        generate(model.half(), PROMPTS, max_new_tokens=2)


def test_the_lowest_number_rules_a_token_out():
    model = made()
    likeliest = int(generate(model, [[1, 2]], max_new_tokens=1).tokens[0])

    def ban(logits):
        logits[..., likeliest] = torch.finfo(logits.dtype).min
        return logits

    with intervene(model, {"logits": ban}):
        for strategy in STRATEGIES.values():
            written = generate(model, [[1, 2]], max_new_tokens=4, strategy=strategy())
            assert likeliest not in written.tokens[0].tolist()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("temperature", [1e-3, 1e-8, 1e-30, 1e-40, 1e-200, 5e-324])
def test_a_tiny_temperature_is_greedy(dtype, temperature):
    logits = torch.randn(20, 13, generator=numbers()).mul(10).to(dtype)
    logits[torch.arange(20), torch.arange(20) % 13] = 40  # one that is alone at the top
    logits[0, 1] = 0.0
    cold = with_temperature(logits, temperature)
    assert not cold.isnan().any()
    chances = cold.softmax(-1)
    assert torch.equal(chances.argmax(-1), logits.argmax(-1))
    assert bool((chances.amax(-1) == 1).all())
    for uniform in (0.0, 0.5, 1 - 2**-24):
        assert torch.equal(draw(cold, torch.full((20,), uniform)), logits.argmax(-1))


@pytest.mark.parametrize("temperature", [1e-12, 1e-40, 1e-320])
@pytest.mark.parametrize("rest", [{}, {"top_k": 3}, {"top_p": 0.9}, {"top_p": 1e-12}])
def test_texts_at_tiny_temperatures_are_the_greedy_ones(temperature, rest):
    model = made()
    cold = Sampling(numbers(), temperature=temperature, **rest)
    found = generate(model, PROMPTS, max_new_tokens=6, strategy=cold)
    wanted = generate(model, PROMPTS, max_new_tokens=6)
    assert [t.tolist() for t in found.tokens] == [t.tolist() for t in wanted.tokens]
    speculative = Speculative(made(seed=1), cold)
    again = generate(model, PROMPTS, max_new_tokens=6, strategy=speculative)
    assert [t.tolist() for t in again.tokens] == [t.tolist() for t in wanted.tokens]


def test_an_ordinary_temperature_divides_and_nothing_else():
    logits = torch.randn(50, 13, generator=numbers())
    for temperature in (0.1, 0.7, 3.0, 1e30):
        assert torch.equal(with_temperature(logits, temperature), logits / temperature)


def test_tied_tokens_stay_tied_at_a_tiny_temperature():
    cold = with_temperature(torch.tensor([[7.0, 7.0, 6.9]]), 1e-40).softmax(-1)
    assert cold.tolist() == [[0.5, 0.5, 0.0]]


def test_a_number_that_rounding_lifts_to_the_end_draws_a_likely_token():
    logits = torch.tensor([[-math.inf, 0.0, 0.0, -math.inf]])
    assert draw(logits, torch.tensor([1.0])).item() in (1, 2)  # what rounding makes of 1 - 2**-60


@pytest.mark.parametrize("p", [1e-300, 1e-12, 1 - 1e-12, 1 - 2**-53])
def test_the_likeliest_token_is_kept_at_every_p(p):
    logits = torch.randn(20, 13, generator=numbers())
    kept = keep_top_p(logits, p).isfinite()
    assert bool(kept.gather(1, logits.argmax(-1, keepdim=True)).all())
    assert bool((kept.sum(-1) == (1 if p < 0.5 else 13)).all())


def test_numbers_of_numpy_are_numbers(unhooked):
    logits = torch.randn(3, 13, generator=numbers())
    assert torch.equal(keep_top_k(logits, np.int64(2)), keep_top_k(logits, 2))
    Sampling(numbers(), temperature=np.float32(0.5), top_k=np.int32(2), top_p=np.float64(0.5))
    BeamSearch(np.int64(2))
    Speculative(made(), ahead=np.int64(2))


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": 0.0},
        {"temperature": -1.0},
        {"temperature": math.nan},
        {"temperature": math.inf},
        {"top_p": 0.0},
        {"top_p": math.nan},
        {"top_p": 1.1},
        {"top_k": 0},
        {"top_k": True},
        {"top_k": 2.0},
    ],
    ids=str,
)
def test_numbers_out_of_range_are_refused(unhooked, wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Sampling(numbers(), **wrong)


def test_finite_logits_pass():
    require_finite(torch.randn(3, 4))
    with pytest.raises(ValueError, match="got nan"):
        require_finite(torch.tensor([0.0, math.nan]))
