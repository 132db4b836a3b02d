"""Weights and parts that are found without a search are those that `nn.Module` keeps."""

import copy
import pickle
import subprocess
import sys

import pytest
import torch
from measured_transformer import Config, Decoder
from measured_transformer.parts.part import Part
from torch import nn
from torch.func import functional_call, stack_module_state
from torch.nn.utils import parametrize


class Scaled(Part):
    """A weight, a part, and a setting that may be a part."""

    def __init__(self, after=None):
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(2.0))
        self.inner_map = nn.Linear(3, 3)
        self.after_it = after

    def forward(self, x):
        y = self.factor * self.inner_map(x)
        return y if self.after_it is None else self.after_it(y)


class Renamed(Part):
    """The same names, otherwise used."""

    def __init__(self):
        super().__init__()
        self.inner_map = nn.Parameter(torch.ones(3))
        self.factor = nn.Identity()


def model():
    torch.manual_seed(0)
    return Decoder(Config(vocab=11, d_model=16, n_layers=2, n_heads=2)).eval()


TOKENS = torch.tensor([[1, 2, 3, 4]])


def test_every_name_reads_what_the_tables_hold():
    for module in model().modules():
        for name, value in (*module._parameters.items(), *module._modules.items()):
            if not name.isdigit():
                assert getattr(module, name) is value, (type(module).__name__, name)


def test_a_replaced_part_or_weight_is_read_in_whatever_way_it_was_put_there():
    part = Scaled()
    for put in (
        lambda new: setattr(part, "inner_map", new),
        lambda new: part.register_module("inner_map", new),
        lambda new: part._modules.__setitem__("inner_map", new),
        lambda new: part.set_submodule("inner_map", new),
    ):
        new = nn.Linear(3, 3)
        put(new)
        assert part.inner_map is new
    weight = nn.Parameter(torch.tensor(5.0))
    part._parameters["factor"] = weight
    assert part.factor is weight
    part.double()
    assert part.factor.dtype == torch.float64


def test_a_plain_value_stands_before_the_tables():
    with_part, without = Scaled(nn.ReLU()), Scaled()
    assert without.after_it is None
    assert isinstance(with_part.after_it, nn.ReLU)
    with_part.after_it = None
    assert with_part.after_it is None
    without.after_it = nn.ReLU()
    assert isinstance(without.after_it, nn.ReLU)


def test_one_name_may_be_a_weight_here_and_a_part_there():
    part, other = Scaled(), Renamed()
    assert isinstance(part.inner_map, nn.Linear)
    assert isinstance(other.inner_map, nn.Parameter)
    assert isinstance(part.factor, nn.Parameter)
    assert isinstance(other.factor, nn.Identity)


def test_what_is_missing_is_refused_as_by_every_module():
    part = Scaled()
    del part.inner_map
    for name in ("inner_map", "no_such_thing"):
        assert not hasattr(part, name)
        with pytest.raises(AttributeError, match=f"'Scaled' object has no attribute '{name}'"):
            getattr(part, name)
    part.register_parameter("inner_map", None)
    assert part.inner_map is None


def test_copies_and_pickles_have_parts_of_their_own():
    first = model()
    for other in (copy.deepcopy(first), pickle.loads(pickle.dumps(first))):
        attention = other.blocks[0].attention
        assert attention.query is not first.blocks[0].attention.query
        assert attention.query is attention.get_submodule("query")
        assert torch.equal(other(TOKENS), first(TOKENS))


def test_weights_given_for_one_call_are_those_that_compute():
    members = [model(), model()]
    with torch.no_grad():
        members[1].blocks[0].attention_norm.weight.mul_(3)
    stacked, _ = stack_module_state(members)
    for i, member in enumerate(members):
        given = {name: tensor[i] for name, tensor in stacked.items()}
        assert torch.equal(functional_call(members[0], given, (TOKENS,)), member(TOKENS))
    assert not torch.equal(members[0](TOKENS), members[1](TOKENS))


def test_a_parametrised_weight_is_the_one_that_is_read():
    class Doubled(nn.Module):
        def forward(self, weight):
            return 2 * weight

    part = model().blocks[0].feedforward.up
    before = part.weight.detach().clone()
    parametrize.register_parametrization(part, "weight", Doubled())
    assert torch.equal(part.weight, 2 * before)


COMPILED = """
import torch
from measured_transformer import Config, Decoder
tokens = torch.tensor([[1, 2, 3, 4]])
eager = Decoder(Config(vocab=11, d_model=16, n_layers=2, n_heads=2)).eval()
compiled = torch.compile(eager, backend="eager", fullgraph=True)
first = compiled(tokens)
assert torch.equal(first, eager(tokens))
eager.blocks[0].feedforward.up = torch.nn.Linear(16, 64)
second = compiled(tokens)
assert torch.equal(second, eager(tokens))
assert not torch.equal(first, second)
"""


def test_a_compiled_model_computes_with_the_parts_that_it_has():
    # In a process of its own: the shape checks that tests have cannot be compiled.
    done = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
