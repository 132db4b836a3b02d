"""The linear map: whichever kernel computes it, results and gradients are those of PyTorch's."""

from __future__ import annotations

from contextlib import suppress

import pytest
import torch
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.parts.kernels import linear as module
from measured_transformer.parts.kernels.linear import Linear, chosen_kernel, linear, linear_kernel
from torch.autograd import forward_ad
from torch.func import functional_call, grad, jvp, vmap
from torch.nn import functional as F

from benchmarks.measure import peak_bytes

SHAPES = [
    ((1024, 64), 512),
    ((4, 3, 64, 96), 480),
    ((8, 128, 128), 512),
    ((1031, 256), 260),
    ((2, 64), 9000),
]


def drawn(shape: tuple[int, ...], d_out: int, *, bias: bool = True, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(shape, generator=generator, dtype=dtype)
    weight = torch.randn(d_out, shape[-1], generator=generator, dtype=dtype) / shape[-1] ** 0.5
    offset = torch.randn(d_out, generator=generator, dtype=dtype) if bias else None
    return x, weight, offset


@pytest.fixture
def by_onednn():
    """Choose oneDNN's product."""
    if not module.has_onednn():
        pytest.skip("this build of PyTorch has no oneDNN")
    with linear_kernel("onednn"):
        yield


def calls_of_onednn(monkeypatch) -> list[tuple[int, ...]]:
    seen = []
    plain = module._multiplied

    def counted(x, *others):
        seen.append(tuple(x.shape))
        return plain(x, *others)

    monkeypatch.setattr(module, "_multiplied", counted)
    return seen


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize(("shape", "d_out"), SHAPES, ids=str)
def test_results_and_gradients_are_those_of_the_matrix_product(
    shape, d_out, bias, by_onednn, monkeypatch
):
    seen = calls_of_onednn(monkeypatch)
    x, weight, offset = drawn(shape, d_out, bias=bias)
    given = torch.randn(*shape[:-1], d_out, generator=torch.Generator().manual_seed(1))
    found = {}
    for name, function in (("ours", linear), ("theirs", F.linear)):
        leaves = [t.clone().requires_grad_() for t in (x, weight, offset) if t is not None]
        y = function(*leaves)
        y.backward(given)
        found[name] = [y.detach(), *(leaf.grad for leaf in leaves)]
    assert seen, "oneDNN was not asked: this test would compare a function with itself"
    for ours, theirs in zip(found["ours"], found["theirs"], strict=True):
        assert ours.shape == theirs.shape
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-3)


def test_a_models_training_step_needs_no_more_memory_than_with_the_product(by_onednn):
    config = Config(vocab=64, d_model=256, n_layers=2, n_heads=8, positions="learned")
    model, tokens = Decoder(config), torch.zeros(8, 256, dtype=torch.int64)
    peaks = []
    for kernel in ("onednn", "product"):
        with linear_kernel(kernel):
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
def test_what_is_frozen_gets_no_gradient_and_the_rest_its_own(frozen, by_onednn):
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


def test_gradients_of_gradients(by_onednn):
    second = []
    for function in (linear, F.linear):
        x, weight, bias = (t.clone().requires_grad_() for t in drawn((1024, 128), 512))
        (first,) = torch.autograd.grad(function(x, weight, bias).tanh().sum(), x, create_graph=True)
        second.append(torch.autograd.grad(first.square().sum(), (x, weight, bias)))
    for ours, theirs in zip(*second, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)


def test_gradients_can_be_asked_for_twice(by_onednn):
    x, weight, bias = (t.clone().requires_grad_() for t in drawn((1024, 128), 512))
    y = linear(x, weight, bias).square().sum()
    first = torch.autograd.grad(y, (x, weight, bias), retain_graph=True)
    again = torch.autograd.grad(y, (x, weight, bias))
    for one, other in zip(first, again, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_derivatives_along_a_direction(by_onednn):
    values = drawn((1024, 128), 512)
    directions = tuple(torch.randn_like(value) for value in values)
    ours = jvp(linear, values, directions)[1]
    torch.testing.assert_close(ours, jvp(F.linear, values, directions)[1], rtol=1e-4, atol=1e-3)


def test_stacked_members_are_the_members_one_by_one(by_onednn):
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
        ((128,), 16384, torch.float32),
        ((0, 64), 512, torch.float32),
    ],
    ids=["float64", "bfloat16", "few vectors", "one vector", "none"],
)
def test_everything_else_is_pytorchs_product_bit_for_bit(
    shape, d_out, dtype, by_onednn, monkeypatch
):
    seen = calls_of_onednn(monkeypatch)
    values = drawn(shape, d_out, dtype=dtype)
    assert torch.equal(linear(*values), F.linear(*values))
    assert not seen


def test_autocast_still_lowers_the_precision_and_gradients_keep_theirs(by_onednn):
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


def test_nobody_gets_onednn_unasked(monkeypatch):
    seen = calls_of_onednn(monkeypatch)
    values = drawn((1024, 128), 512)
    assert torch.equal(linear(*values), F.linear(*values))
    assert not seen


@pytest.mark.parametrize("is_faster", [True, False])
def test_the_fastest_is_found_by_one_trial_for_each_size(is_faster, monkeypatch):
    if not module.has_onednn():
        pytest.skip("this build of PyTorch has no oneDNN")
    tried, product, onednn = [], F.linear, 1.0 if is_faster else 1.99

    def seconds(kernel, given, *, gradients):
        tried.append((tuple(given[0].shape), gradients))
        return 2.0 if kernel is product else onednn

    monkeypatch.setattr(module, "_trials", {})
    monkeypatch.setattr(module, "_seconds", seconds)
    values = drawn((1024, 128), 512)
    with linear_kernel("fastest"):
        first = linear(*values)
        assert set(tried) == {((1024, 128), False)}
        trials = len(tried)
        seen = calls_of_onednn(monkeypatch)
        assert torch.equal(linear(*values), first)
        linear(*drawn((1500, 128), 512))  # nearly as many vectors
        assert len(tried) == trials
        linear(*drawn((4096, 128), 512))
        assert len(tried) == 2 * trials
        values[1].requires_grad_()
        linear(*values)
        assert tried[-1] == ((1024, 128), True)
        with torch.no_grad():
            linear(*values)
        assert len(tried) == 3 * trials
    assert bool(seen) == is_faster


@pytest.mark.parametrize("gradients", [True, False])
def test_a_trial_times_both_kernels_and_leaves_no_gradients(gradients, monkeypatch):
    if not module.has_onednn():
        pytest.skip("this build of PyTorch has no oneDNN")
    seen = calls_of_onednn(monkeypatch)
    values = drawn((256, 128), 512)
    values[1].requires_grad_()
    assert isinstance(module._is_faster(*values, gradients=gradients), bool)
    assert len(seen) == (1 + module._TURNS) * (3 if gradients else 1)
    assert values[1].grad is None
    assert not values[0].requires_grad
    assert module._seconds(F.linear, values[:2], gradients=False) > 0


def test_the_choice_ends_with_its_block():
    with linear_kernel("onednn"):
        with suppress(RuntimeError), linear_kernel("product"):
            assert chosen_kernel() == "product"
            raise RuntimeError
        assert chosen_kernel() == "onednn"
    assert chosen_kernel() is None


def test_another_word_is_refused(unhooked):
    with (
        pytest.raises(ValueError, match=r"'product', 'onednn', 'fastest'\), got 'convolution'"),
        linear_kernel("convolution"),
    ):
        pass


def test_the_module_is_a_linear_layer_like_any_other(by_onednn):
    ours, theirs = Linear(128, 512), torch.nn.Linear(128, 512)
    theirs.load_state_dict(ours.state_dict())
    assert isinstance(ours, torch.nn.Linear)
    x = drawn((1024, 128), 512)[0]
    torch.testing.assert_close(ours(x), theirs(x), rtol=1e-4, atol=1e-4)
    replaced = functional_call(ours, {"weight": torch.zeros(512, 128)}, x)
    assert torch.equal(replaced, ours.bias.expand(1024, 512))


def test_one_thread_and_a_view_that_is_not_contiguous(by_onednn):
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
def test_a_result_may_be_changed_in_place(d_out, gradients, by_onednn):
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


def test_logits_may_be_masked_in_place(by_onednn):
    model = Decoder(Config(vocab=512, d_model=128, n_layers=1, n_heads=2))
    logits = model(torch.zeros(8, 128, dtype=torch.int64))
    logits[..., 0] = -1e9
    logits.logsumexp(-1).mean().backward()
    assert bool((model.unembedding.weight.grad[0] == 0).all())
    assert bool((model.unembedding.weight.grad[1:] != 0).any())


def test_a_sum_passes_one_gradient_for_all(by_onednn):
    grads = []
    for function in (linear, F.linear):
        x, weight, bias = (t.clone().requires_grad_() for t in drawn((1024, 128), 512))
        function(x, weight, bias).sum().backward()
        grads.append([x.grad, weight.grad, bias.grad])
    for ours, theirs in zip(*grads, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-3)


def test_a_bias_alone_can_learn(by_onednn):
    x, weight, bias = drawn((1024, 128), 512)
    bias.requires_grad_()
    linear(x, weight, bias).sum().backward()
    torch.testing.assert_close(bias.grad, torch.full((512,), 1024.0))


def test_where_onednn_is_switched_off_the_product_is_used(monkeypatch):
    seen = calls_of_onednn(monkeypatch)
    with torch.backends.mkldnn.flags(enabled=False), linear_kernel("onednn"):
        linear(*drawn((1024, 128), 512))
    assert not seen


def test_where_pytorch_lacks_the_operation_the_product_is_used(monkeypatch):
    seen = calls_of_onednn(monkeypatch)
    monkeypatch.setattr(module, "has_onednn", lambda: False)
    with linear_kernel("onednn"):
        linear(*drawn((1024, 128), 512))
    assert not seen


def test_forward_derivatives_are_kept(by_onednn):
    values = drawn((1024, 128), 512)
    direction = torch.randn_like(values[0])
    for enabled in (True, False):
        with torch.set_grad_enabled(enabled), forward_ad.dual_level():
            dual = forward_ad.make_dual(values[0], direction)
            along = forward_ad.unpack_dual(linear(dual, *values[1:])).tangent
        torch.testing.assert_close(along, F.linear(direction, values[1]), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    "misfit",
    [
        lambda x, w, b: (x, w[:, :100], b),
        lambda x, w, b: (x, w, b[:100]),
        lambda x, w, b: (x, w.double(), b),
    ],
    ids=["widths", "bias", "precision"],
)
def test_what_does_not_fit_is_refused_with_pytorchs_words(misfit, by_onednn, unhooked):
    values = misfit(*drawn((1024, 128), 512))
    with pytest.raises(RuntimeError) as theirs:
        F.linear(*values)
    with pytest.raises(RuntimeError) as ours:
        linear(*values)
    assert str(ours.value) == str(theirs.value)


def test_a_bias_for_every_vector_works_as_in_pytorch(by_onednn, unhooked):
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
