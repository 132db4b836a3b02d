"""The course's model: causal with its mask, and the library's decoder with the same weights."""

from __future__ import annotations

import torch
from measured_transformer.parts.positions import sinusoidal_encoding
from measured_transformer.training.seeding import seeded
from measured_transformer.variants.course_model import CourseModel, as_decoder


def drawn(**sizes: int) -> CourseModel:
    with seeded(0):
        model = CourseModel(11, 8, 2, 3, **sizes).double().eval()
    model.positions.pe = sinusoidal_encoding(len(model.positions.pe), 8, dtype=torch.float64)
    return model


@torch.no_grad()
def test_it_is_the_librarys_decoder() -> None:
    model, tokens = drawn(), torch.randint(11, (3, 6), generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(as_decoder(model)(tokens), model(tokens), rtol=0, atol=1e-12)
    assert not torch.allclose(as_decoder(model)(tokens), model(tokens, mask="none"))


@torch.no_grad()
def test_only_the_mask_hides_what_comes_later() -> None:
    model, tokens = drawn(), torch.arange(6)[None]
    other = tokens.clone()
    other[:, 4:] += 2
    assert torch.equal(model(tokens)[:, :4], model(other)[:, :4])
    assert not torch.allclose(model(tokens, mask="none")[:, :4], model(other, mask="none")[:, :4])


def test_positions_are_a_buffer() -> None:
    model = drawn(longest=10)
    assert "positions.pe" in model.state_dict()
    assert "positions.pe" not in dict(model.named_parameters())
    assert model.positions.pe.shape == (10, 8)
