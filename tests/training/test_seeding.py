"""Seeds: separate streams for separate purposes, and no trace in PyTorch's own generators."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from measured_transformer.training.seeding import derived_seed, make_generator, seeded

PURPOSES = ["training", "evaluation", "dropout"]


def first(generator):
    return tuple(torch.randint(2**62, (2,), generator=generator).tolist())


def test_every_seed_and_purpose_has_a_stream_of_its_own():
    purposes = [
        *PURPOSES,
        "evaluation of the longest sequences",
        "evaluation of the longest sequence",
    ]
    streams = {first(make_generator(seed, purpose)) for purpose in purposes for seed in range(500)}
    assert len(streams) == 500 * len(purposes)


def test_no_two_purposes_meet_below_a_hundred_million_seeds():
    # The seeds of a purpose are a run of consecutive numbers among 2^32.
    for a, b in itertools.combinations([derived_seed(0, purpose) for purpose in PURPOSES], 2):
        assert min((a - b) % 2**32, (b - a) % 2**32) > 10**8
    # Weights are drawn from the seeds themselves.
    assert all(10**8 < derived_seed(0, purpose) < 2**32 - 10**8 for purpose in PURPOSES)


@given(a=st.integers(0, 2**32 - 1), b=st.integers(0, 2**32 - 1), purpose=st.text(max_size=40))
def test_different_seeds_never_share_a_stream(a, b, purpose):
    low = [make_generator(seed, purpose).initial_seed() % 2**32 for seed in (a, b)]
    assert (low[0] == low[1]) == (a == b)  # PyTorch's CPU generator looks at these 32 bits only


def test_pytorch_looks_at_32_bits_only():
    # When this fails, a longer seed is worth having.
    low, high = torch.Generator().manual_seed(7), torch.Generator().manual_seed(7 + 2**32)
    assert first(low) == first(high)


def test_a_stream_is_the_same_each_time_and_everywhere():
    assert first(make_generator(3, "training")) == first(make_generator(3, "training"))
    assert derived_seed(3, "training") == derived_seed(0, "training") + 3
    state = torch.random.get_rng_state()
    first(make_generator(3, "training"))
    assert torch.equal(torch.random.get_rng_state(), state)


def test_seeded_starts_from_the_seed_and_leaves_no_trace():
    torch.manual_seed(99)
    expected = torch.rand(4)
    torch.manual_seed(99)
    draws = []
    for seed in (1, 1, 2):
        with seeded(seed):
            draws.append(torch.rand(3))
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    with pytest.raises(RuntimeError, match="stop"), seeded(1):
        stop()
    assert torch.equal(torch.rand(4), expected)


def stop():
    torch.rand(3)
    raise RuntimeError("stop")
