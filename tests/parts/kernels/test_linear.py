"""The linear map: whichever kernel computes it, results and gradients are those of PyTorch's."""

from __future__ import annotations

from contextlib import suppress

import pytest
import torch
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.parts.kernels import linear as module
from measured_transformer.parts.kernels.linear import Linear, chosen_kernel, linear, linear_kernel
from torch.func import functional_call, grad, jvp, vmap
from torch.nn import functional as F

from benchmarks.measure import peak_bytes

# The last two are large enough for the function of our own, the others for PyTorch's convolution.
SHAPES = [((1024, 64), 512), ((4, 3, 64, 96), 480), ((8, 128, 128), 512), ((1024, 256), 260)]


def drawn(shape: tuple[int, ...], d_out: int, *, bias: bool = True, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(shape, generator=generator, dtype=dtype)
    weight = torch.randn(d_out, shape[-1], generator=generator, dtype=dtype) / shape[-1] ** 0.5
    offset = torch.randn(d_out, generator=generator, dtype=dtype) if bias else None
    return x, weight, offset


@pytest.fixture
def by_convolution(monkeypatch):
    """Choose the convolution, and let it run wherever its shapes allow, on any processor."""
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    with linear_kernel("convolution"):
        yield


def calls_of_convolution(monkeypatch) -> list[tuple[int, ...]]:
    seen = []
    plain = F.conv2d

    def counted(images, *others):
        seen.append(tuple(images.shape))
        return plain(images, *others)

    monkeypatch.setattr(module.F, "conv2d", counted)
    return seen


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize(("shape", "d_out"), SHAPES, ids=str)
def test_results_and_gradients_are_those_of_the_matrix_product(
    shape, d_out, bias, by_convolution, monkeypatch
):
    seen = calls_of_convolution(monkeypatch)
    x, weight, offset = drawn(shape, d_out, bias=bias)
    given = torch.randn(*shape[:-1], d_out, generator=torch.Generator().manual_seed(1))
    found = {}
    for name, function in (("ours", linear), ("theirs", F.linear)):
        leaves = [t.clone().requires_grad_() for t in (x, weight, offset) if t is not None]
        y = function(*leaves)
        y.backward(given)
        found[name] = [y.detach(), *(leaf.grad for leaf in leaves)]
    assert seen, "the convolution was not taken: this test would compare a function with itself"
    for ours, theirs in zip(found["ours"], found["theirs"], strict=True):
        assert ours.shape == theirs.shape
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-3)


def test_a_models_training_step_needs_no_more_memory_than_with_the_product(
    by_convolution, monkeypatch
):
    config = Config(vocab=64, d_model=256, n_layers=2, n_heads=8, positions="learned")
    model, tokens = Decoder(config), torch.zeros(8, 256, dtype=torch.int64)
    peaks = []
    for capability in ("AVX512", "AVX2"):
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda now=capability: now)
        for measured in (False, True):
            model.zero_grad()
            work = lambda: model(tokens).logsumexp(-1).mean().backward()  # noqa: E731
            if measured:
                peaks.append(peak_bytes(work, "cpu"))
            else:
                work()
    ours, theirs = peaks
    assert ours <= 1.001 * theirs


@pytest.mark.parametrize("frozen", ["x", "weight", "bias"])
def test_what_is_frozen_gets_no_gradient_and_the_rest_its_own(frozen, by_convolution):
    names = ["x", "weight", "bias"]
    grads = []
    for function in (linear, F.linear):
        leaves = [
            t.clone().requires_grad_(n != frozen)
            for n, t in zip(names, drawn((1024, 128), 512), strict=True)
        ]
        function(*leaves).square().sum().backward()
        grads.append([leaf.grad for leaf in leaves])
    for name, ours, theirs in zip(names, *grads, strict=True):
        if name == frozen:
            assert ours is None
        else:
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-1)


def test_gradients_of_gradients(by_convolution):
    second = []
    for function in (linear, F.linear):
        x, weight, bias = (t.clone().requires_grad_() for t in drawn((1024, 128), 512))
        (first,) = torch.autograd.grad(function(x, weight, bias).tanh().sum(), x, create_graph=True)
        second.append(torch.autograd.grad(first.square().sum(), (x, weight, bias)))
    for ours, theirs in zip(*second, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)


def test_gradients_can_be_asked_for_twice(by_convolution):
    x, weight, bias = (t.clone().requires_grad_() for t in drawn((1024, 128), 512))
    y = linear(x, weight, bias).square().sum()
    first = torch.autograd.grad(y, (x, weight, bias), retain_graph=True)
    again = torch.autograd.grad(y, (x, weight, bias))
    for one, other in zip(first, again, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_derivatives_along_a_direction(by_convolution):
    values = drawn((1024, 128), 512)
    directions = tuple(torch.randn_like(value) for value in values)
    ours = jvp(linear, values, directions)[1]
    torch.testing.assert_close(ours, jvp(F.linear, values, directions)[1], rtol=1e-4, atol=1e-3)


def test_stacked_members_are_the_members_one_by_one(by_convolution):
    x, weight, _ = drawn((1024, 128), 512)
    weights = torch.stack((weight, 2 * weight, -weight))

    def loss(weight):
        return linear(x, weight).square().mean()

    stacked = vmap(grad(loss))(weights)
    for one, together in zip(weights, stacked, strict=True):
        torch.testing.assert_close(together, grad(loss)(one), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "d_out", "dtype"),
    [
        ((1024, 128), 512, torch.float64),
        ((1024, 128), 512, torch.bfloat16),
        ((8, 128), 512, torch.float32),
        ((1031, 128), 512, torch.float32),
        ((4096, 16), 1024, torch.float32),
        ((0, 64), 512, torch.float32),
    ],
    ids=["float64", "bfloat16", "few vectors", "not in sixteens", "narrow", "none"],
)
def test_everything_else_is_pytorchs_product_bit_for_bit(
    shape, d_out, dtype, by_convolution, monkeypatch
):
    seen = calls_of_convolution(monkeypatch)
    values = drawn(shape, d_out, dtype=dtype)
    assert torch.equal(linear(*values), F.linear(*values))
    assert not seen


def test_autocast_still_lowers_the_precision_and_gradients_keep_theirs(by_convolution):
    grads = []
    for function in (linear, F.linear):
        x, weight, bias = (t.clone().requires_grad_() for t in drawn((1024, 128), 512))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = function(x, weight, bias)
        assert y.dtype == torch.bfloat16
        y.float().square().mean().backward()
        grads.append([x.grad, weight.grad, bias.grad])
    for ours, theirs in zip(*grads, strict=True):
        assert ours.dtype == torch.float32
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


def test_other_processors_use_the_matrix_product(monkeypatch):
    seen = calls_of_convolution(monkeypatch)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    with linear_kernel("convolution"):
        linear(*drawn((1024, 128), 512))
    assert not seen


def test_nobody_gets_the_convolution_unasked(monkeypatch):
    seen = calls_of_convolution(monkeypatch)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    values = drawn((1024, 128), 512)
    assert torch.equal(linear(*values), F.linear(*values))
    assert not seen


def test_the_choice_ends_with_its_block():
    with linear_kernel("convolution"):
        with suppress(RuntimeError), linear_kernel("product"):
            assert chosen_kernel() == "product"
            raise RuntimeError
        assert chosen_kernel() == "convolution"
    assert chosen_kernel() is None


def test_another_word_is_refused(unhooked):
    with (
        pytest.raises(ValueError, match="'product' or 'convolution', got 'fast'"),
        linear_kernel("fast"),
    ):
        pass


def test_the_module_is_a_linear_layer_like_any_other(by_convolution):
    ours, theirs = Linear(128, 512), torch.nn.Linear(128, 512)
    theirs.load_state_dict(ours.state_dict())
    assert isinstance(ours, torch.nn.Linear)
    x = drawn((1024, 128), 512)[0]
    torch.testing.assert_close(ours(x), theirs(x), rtol=1e-4, atol=1e-4)
    replaced = functional_call(ours, {"weight": torch.zeros(512, 128)}, x)
    assert torch.equal(replaced, ours.bias.expand(1024, 512))


def test_one_thread_and_a_view_that_is_not_contiguous(by_convolution):
    threads = torch.get_num_threads()
    x, weight, bias = drawn((2048, 64), 512)
    torch.set_num_threads(1)
    try:
        every_other = x[::2]
        torch.testing.assert_close(
            linear(every_other, weight, bias), F.linear(every_other, weight, bias)
        )
        torch.testing.assert_close(
            linear(x, weight, bias), F.linear(x, weight, bias), rtol=1e-4, atol=1e-4
        )
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("d_out", [64, 512], ids=["small weight", "large weight"])
@pytest.mark.parametrize("gradients", [True, False], ids=["gradients", "no gradients"])
def test_a_result_may_be_changed_in_place(d_out, gradients, by_convolution):
    found = []
    for function in (linear, F.linear):
        x, weight, bias = (t.clone().requires_grad_() for t in drawn((2048, 128), d_out))
        with torch.set_grad_enabled(gradients):
            y = function(x, weight, bias)
            y[..., 0] = -7.0
            y.relu_()
        assert not y._is_view()
        if gradients:
            y.square().mean().backward()
        found.append([y.detach(), x.grad, weight.grad, bias.grad])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_logits_may_be_masked_in_place(by_convolution):
    model = Decoder(Config(vocab=512, d_model=128, n_layers=1, n_heads=2))
    logits = model(torch.zeros(8, 128, dtype=torch.int64))
    logits[..., 0] = -1e9
    logits.logsumexp(-1).mean().backward()
    assert bool((model.unembedding.weight.grad[0] == 0).all())
    assert bool((model.unembedding.weight.grad[1:] != 0).any())


def test_a_sum_passes_one_gradient_for_all(by_convolution):
    grads = []
    for function in (linear, F.linear):
        x, weight, bias = (t.clone().requires_grad_() for t in drawn((1024, 128), 512))
        function(x, weight, bias).sum().backward()
        grads.append([x.grad, weight.grad, bias.grad])
    for ours, theirs in zip(*grads, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-3)


def test_a_bias_alone_can_learn(by_convolution):
    x, weight, bias = drawn((1024, 128), 512)
    bias.requires_grad_()
    linear(x, weight, bias).sum().backward()
    torch.testing.assert_close(bias.grad, torch.full((512,), 1024.0))


def test_where_the_convolutions_library_is_switched_off_the_product_is_used(monkeypatch):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    seen = calls_of_convolution(monkeypatch)
    with torch.backends.mkldnn.flags(enabled=False), linear_kernel("convolution"):
        linear(*drawn((1024, 128), 512))
    assert not seen


def test_an_uneven_number_of_vectors_is_one_image_where_there_are_several_threads(
    by_convolution, monkeypatch
):
    x, weight, bias = drawn((1031, 128), 512)
    for threads, images in ((1, []), (2, [(1, 128, 1031, 1)])):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        with monkeypatch.context() as patched:
            seen = calls_of_convolution(patched)
            y = linear(x, weight, bias)
        assert seen == images
        torch.testing.assert_close(y, F.linear(x, weight, bias), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "misfit",
    [
        lambda x, w, b: (x, w[:, :100], b),
        lambda x, w, b: (x, w, b[:100]),
        lambda x, w, b: (x, w.double(), b),
    ],
    ids=["widths", "bias", "precision"],
)
def test_what_does_not_fit_is_refused_with_pytorchs_words(misfit, by_convolution, unhooked):
    values = misfit(*drawn((1024, 128), 512))
    with pytest.raises(RuntimeError) as theirs:
        F.linear(*values)
    with pytest.raises(RuntimeError) as ours:
        linear(*values)
    assert str(ours.value) == str(theirs.value)


def test_a_bias_for_every_vector_works_as_in_pytorch(by_convolution, unhooked):
    x, weight, _ = drawn((1024, 128), 512)
    bias = torch.randn(1024, 512)
    assert torch.equal(linear(x, weight, bias), F.linear(x, weight, bias))


@pytest.mark.parametrize("bias", [True, False])
def test_a_wide_map_multiplies_float16_in_float32(bias):
    narrow = Linear(16, 4, bias=bias)
    with torch.no_grad():
        narrow.weight.copy_(300 * torch.randn(4, 16, generator=torch.Generator().manual_seed(0)))
    wide = Linear(16, 4, bias=bias)
    wide.wide = True
    wide.load_state_dict(narrow.state_dict())
    x = torch.full((2, 16), 200.0)
    expected = narrow.half().float()(x)
    assert expected.abs().max() > torch.finfo(torch.float16).max
    assert torch.equal(wide.half()(x.half()), expected)
    assert torch.equal(wide.float()(x), expected)
    assert wide.bfloat16()(x.bfloat16()).dtype == torch.bfloat16
