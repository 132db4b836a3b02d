"""A model without taps is watched by the names of its modules, and nothing stays behind."""

import copy
import dataclasses
import pickle
import typing
import warnings

import pytest
import torch
from measured_transformer.internals.at import at
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.internals.modules import by_head, called_modules, split_heads
from torch import nn

X = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(0)).double()


class Block(nn.Module):
    """A residual block that reads a norm, writes in place and returns a tuple."""

    def __init__(self):
        super().__init__()
        self.norm, self.up, self.act = nn.LayerNorm(4), nn.Linear(4, 8), nn.ReLU(inplace=True)
        self.down, self.idle = nn.Linear(8, 4), nn.Identity()

    def forward(self, x, scale=None, *, shift=None):
        y = self.down(self.act(self.up(self.norm(x))))
        y = y if scale is None else scale * y
        y = y if shift is None else y + shift
        y += x
        return y, y.mean(-1)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        for i, layer in enumerate(self.layers):
            x, _ = layer(x, torch.tensor(2.0).double(), shift=torch.full((4,), float(i)).double())
        return {"logits": self.head(x), "state": x}


def made():
    torch.manual_seed(0)
    return Model().double()


def hooks(model):
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_forward_pre_hooks_with_kwargs")
    return sum(len(getattr(module, kind)) for module in model.modules() for kind in kinds)


def test_names_globs_and_places():
    model = made()
    for patterns, expected in (
        (["head"], {"head": (2, 5, 3)}),
        (["layers.*.act"], {"layers.0.act": (2, 5, 8), "layers.1.act": (2, 5, 8)}),
        (["layers.?"], {"layers.0": (2, 5, 4), "layers.1": (2, 5, 4)}),
        (["head:input", "head"], {"head:input": (2, 5, 4), "head": (2, 5, 3)}),
        (["layers.1:output.1"], {"layers.1:output.1": (2, 5)}),
        (["layers.?:input.shift"], {f"layers.{i}:input.shift": (4,) for i in range(2)}),
        (
            ["layers.0:input.scale", "layers.0:input.1"],
            dict.fromkeys(("layers.0:input.scale", "layers.0:input.1"), ()),
        ),
        (
            ["", ":output.state", ":input"],
            {"": (2, 5, 3), ":output.state": (2, 5, 4), ":input": (2, 5, 4)},
        ),
    ):
        with capture(model, *patterns) as seen:
            model(X)
        assert {name: tuple(value.shape) for name, value in seen.items()} == expected
    with capture(model) as seen:
        model(X)
    assert set(seen) == {name for name in called_modules(model) if name and "idle" not in name}


def test_values_are_those_of_the_model_though_it_writes_in_place():
    model = made()
    block = model.layers[0]
    with torch.no_grad():
        before = block.up(block.norm(X))
        wanted = model(X)["logits"]
        with capture(model, "layers.0.up", "layers.0.down", "layers.1:input") as seen:
            assert torch.equal(model(X)["logits"], wanted)
        assert torch.equal(seen["layers.0.up"], before)  # the activation has written over it since
        assert torch.equal(seen["layers.0.down"], block.down(before.relu()))
        whole = 2 * seen["layers.0.down"] + X
        assert torch.allclose(seen["layers.1:input"], whole)
        with capture(model, "layers.0.up", transform=lambda x: x.mul_(0)[..., :1]) as seen:
            assert torch.equal(model(X)["logits"], wanted)
        assert seen["layers.0.up"].shape == (2, 5, 1)


def test_changes_are_those_asked_for_and_write_into_nothing_of_the_caller():
    model = made()
    row = torch.randn(8).double()
    kept = row.clone()
    with intervene(model, {"layers.0.up": row}), capture(model, "layers.0.down") as seen:
        model(X)
    assert torch.equal(row, kept)
    assert torch.allclose(seen["layers.0.down"], model.layers[0].down(row.relu()).expand(2, 5, 4))
    with intervene(model, {"layers.*": at(0.0, positions=[1], rows=0)}):
        out = model(X)["state"]
    assert bool((out[0, 1] == 0).all())
    assert bool((out[1] != 0).all())
    with intervene(model, {":output.state": 0.0}):
        out = model(X)
    assert bool((out["state"] == 0).all())
    assert torch.equal(out["logits"], model(X)["logits"])
    with (
        intervene(model, {"layers.1:input.shift": 7}),
        capture(model, "layers.1:input.shift") as seen,
    ):
        moved = model(X)["state"]
    assert torch.allclose(moved, model(X)["state"] + 6)
    assert bool((seen["layers.1:input.shift"] == 7).all())


class Pair(typing.NamedTuple):
    first: torch.Tensor
    second: torch.Tensor


@dataclasses.dataclass(frozen=True)
class Fields:
    state: torch.Tensor
    more: tuple


@pytest.mark.parametrize(
    ("make", "path", "read"),
    [
        (lambda x: x, "", lambda o: o),
        (lambda x: (x + 1, x), "1", lambda o: o[1]),
        (lambda x: [None, [x]], "", lambda o: o[1][0]),
        (lambda x: Pair(x + 1, x), "second", lambda o: o.second),
        (lambda x: Pair(x + 1, x), "1", lambda o: o.second),
        (lambda x: {"a": 3, "b": {"c": x}}, "b.c", lambda o: o["b"]["c"]),
        (lambda x: Fields(x + 1, (None, x)), "more.1", lambda o: o.more[1]),
    ],
)
def test_values_are_found_and_replaced_inside_others(make, path, read):
    class Returning(nn.Module):
        def forward(self, x):
            self.kept = make(x)
            return self.kept

    model = nn.Sequential(Returning(), nn.Identity())
    name = f"0:output.{path}" if path else "0"
    with intervene(model, {name: lambda x: 3 * x}), capture(model, name) as seen:
        out = model(X)
    assert torch.equal(read(out), 3 * X)
    assert torch.equal(seen[name], 3 * X)
    assert torch.equal(read(model[0].kept), X)
    assert type(out) is type(model[0].kept)


def test_contexts_nest_in_order_and_leave_nothing():
    model = made()
    plain = pickle.dumps(model)
    wanted = model(X)["logits"].detach()
    with intervene(model, {"head": lambda x: x + 1}):
        with intervene(model, {"head": lambda x: 2 * x}), capture(model, "head") as seen:
            out = model(X)["logits"]
            inner = copy.deepcopy(model), pickle.loads(pickle.dumps(model))
        assert torch.allclose(out, 2 * (wanted + 1))
        assert torch.equal(seen["head"], out)
        assert not seen["head"].requires_grad
        with pytest.raises(ZeroDivisionError), intervene(model, {"layers.0": lambda x: 1 // 0}):
            model(X)
        assert torch.allclose(model(X)["logits"], wanted + 1)
    assert torch.equal(model(X)["logits"], wanted)
    assert hooks(model) == 0
    assert pickle.dumps(model) == plain
    for twin in inner:  # made while both were watched
        assert torch.equal(twin(X)["logits"], wanted)


@pytest.mark.parametrize("frozen", [False, True])
def test_gradients_are_those_of_what_passes_there(frozen):
    model = made().requires_grad_(not frozen)
    with capture(model, "layers.0", "layers.1.norm:input", "layers.1.up", gradients=True) as seen:
        out = model(X)["logits"]
        out.square().sum().backward()
    assert torch.equal(out, model(X)["logits"])
    for name, value in seen.items():
        slope = torch.randn_like(value)
        ends = []
        for step in (1e-5, -1e-5):
            with (
                torch.no_grad(),
                intervene(model, {name: lambda x, s=step, d=slope: x + s * d}),
            ):
                ends.append(model(X)["logits"].square().sum())
        assert float((ends[0] - ends[1]) / 2e-5) == pytest.approx(
            float((value.grad * slope).sum()), rel=1e-6
        )


@pytest.mark.parametrize("how", ["outside", "in place", "a layer", "a function around it"])
def test_what_was_compiled_before_is_watched(how):
    torch.compiler.reset()
    model = made()
    wanted = model(X)["logits"].detach()
    called = model
    if how == "outside":
        called = model = torch.compile(model, backend="eager")
    elif how == "in place":
        model.compile(backend="eager")
    elif how == "a layer":
        model.layers[0] = torch.compile(model.layers[0], backend="eager")
    else:
        called = torch.compile(lambda x: model(x), backend="eager")
    torch.testing.assert_close(called(X)["logits"], wanted)
    assert "layers.0.up" in called_modules(model)
    with capture(model, "layers.0.up") as seen, intervene(model, {"layers.1": 0.0}):
        out = called(X)["logits"]
    bias = getattr(model, "_orig_mod", model).head.bias
    torch.testing.assert_close(out, bias.expand(2, 5, 3))
    assert seen["layers.0.up"].shape == (2, 5, 8)
    torch.testing.assert_close(called(X)["logits"], wanted)


def test_a_shared_module_has_all_its_names_and_a_glob_changes_it_once():
    shared = nn.Linear(4, 4).double()
    model = nn.Sequential(shared, nn.Tanh(), shared)
    assert list(called_modules(model)) == ["", "0", "1", "2"]
    double = {"[02]": lambda x: 2 * x}
    with intervene(model, double):
        out = model(X)
    assert torch.equal(out, 2 * shared((2 * shared(X)).tanh()))
    with capture(model, "0", "2", "*") as seen:
        out = model(X)
    assert sorted(seen) == ["0", "1", "2"]
    assert torch.equal(seen["0"], out)  # the last of its calls


def test_a_module_that_holds_what_holds_it():
    model = nn.Sequential(nn.Linear(4, 4).double())
    model[0].parent = model
    assert list(called_modules(model)) == ["", "0"]


def test_what_was_not_called_is_said():
    model = made()
    message = r"layers\.0\.idle was not called"
    with pytest.warns(UserWarning, match=message) as said, intervene(model, {"layers.0.idle": 0.0}):
        model(X)
    assert said[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with intervene(model, {"layers.0.idle": 0.0}), capture(model, "*"):
            model.head(X)


class Quiet(nn.Module):
    def forward(self, x):
        return None


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        (
            "layers.0.dwon",
            KeyError,
            r"no module is called 'layers\.0\.dwon'; the nearest names are layers",
        ),
        ("layers", KeyError, r"no module is called 'layers'; the nearest"),
        (
            "zzz.*",
            KeyError,
            r"no module is called 'zzz\.\*' \(the model has no taps and 13 modules",
        ),
        ("head:outputs", ValueError, r"'input' or 'output', .* got 'head:outputs'"),
        ("layers.0:output.2", ValueError, r"layers\.0:output\.2 is not there: tuple has 0, 1$"),
        ("layers.0:input.size", ValueError, r"called with x, scale, shift$"),
        ("head:output.0", ValueError, r"head:output\.0 is not there: Tensor has no items"),
        ("layers.2", ValueError, r"layers\.2 holds no tensor, but None"),
    ],
)
def test_what_is_not_there_is_refused(name, kind, message):
    model = made()
    if name == "layers.2":
        model.head = nn.Sequential(model.head)
        model.layers.append(Quiet())
        model.forward = lambda x: model.layers[2](x)
    with pytest.raises(kind, match=message), capture(model, name):
        model(X)
    assert hooks(model) == 0


def test_a_misfit_names_the_module():
    model = made()
    with (
        pytest.raises(
            ValueError, match=r"replacement of head must be a tensor of shape \(2, 5, 3\)"
        ),
        intervene(model, {"head": torch.zeros(7)}),
    ):
        model(X)


@pytest.mark.filterwarnings("ignore:.*is deprecated:DeprecationWarning")
def test_torchscript_and_checkpointing_are_refused():
    scripted = torch.jit.trace(nn.Sequential(nn.Linear(4, 4)), X.float())
    with pytest.raises(ValueError, match="TorchScript"), capture(scripted, "0"):
        pass
    model = made()
    model.gradient_checkpointing = True
    with (
        pytest.raises(ValueError, match="a model with gradient checkpointing"),
        intervene(model, {"head": 0.0}),
    ):
        model(X)
    with capture(model.eval(), "head") as seen, intervene(model, {"layers.0": 0.0}):
        model(X)
    assert list(seen) == ["head"]


def test_heads_side_by_side():
    value = torch.randn(2, 5, 12)
    assert torch.equal(split_heads(value, 3)[:, 1, 4], value[:, 4, 4:8])
    wanted = value.clone()
    wanted[:, 3, 8:] = 0
    assert torch.equal(by_head(at(0.0, heads=2, positions=3), 3)(value), wanted)
    for bad, n in ((value, 5), (value[0], 3), (value, 0)):
        with pytest.raises(ValueError, match=f"whose width {n} heads divide"):
            split_heads(bad, n)
    with pytest.raises(ValueError, match=r"shape \(2, 3, 5, 4\), got shape \(2, 1, 5, 4\)"):
        by_head(lambda x: x[:, :1], 3)(value)


def test_a_model_with_taps_has_no_hooks():
    from measured_transformer.models.config import Config
    from measured_transformer.models.decoder import Decoder

    model = Decoder(Config(vocab=9, d_model=12, n_layers=1, n_heads=3))
    with capture(model) as seen, intervene(model, {"logits": 0.0}):
        assert hooks(model) == 0
        model(torch.tensor([[1, 2]]))
    assert "logits" in seen
    with pytest.raises(KeyError, match="no tap is called"), capture(model, "blocks.0.attention"):
        pass
