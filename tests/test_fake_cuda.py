"""The device that is not there: right values, PyTorch's own refusals, and what training left on it."""

import copy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from fake_cuda import NAME, FakeCuda, fake_cuda, fakes_in, on_fake_cuda
from torch import nn
from torch.nn import functional as F


@pytest.fixture(autouse=True)
def _there():
    with fake_cuda():
        yield


def test_the_machine_seems_to_have_a_device():
    assert torch.cuda.is_available()
    assert torch.cuda.get_device_name() == NAME
    assert torch.zeros(2, device="cuda").device == torch.device("cuda", 0)
    assert torch.zeros(2).to("cuda:0").is_cuda
    assert torch.zeros(2).cuda().cpu().device == torch.device("cpu")


MIXED = "the same device"


@pytest.mark.parametrize(
    "call",
    [
        lambda here, there: here + there,
        lambda here, there: there @ here,
        lambda here, there: torch.where(there > 0, here, there),
        lambda here, there: torch.cat([here, there]),
        lambda here, there: torch.stack([here[0, 0], there[0, 0]]),
        lambda here, there: F.embedding(here.long().abs().clamp(max=2), there),
        lambda here, there: F.cross_entropy(there, here.argmax(-1)),
        lambda here, there: F.linear(here, there),
        lambda here, there: F.scaled_dot_product_attention(there[None], here[None], there[None]),
        lambda here, there: here.add_(there[0, 0]),
        lambda here, there: there.masked_fill(here > 0, 0.0),
        lambda here, there: there.gather(1, here.argmax(-1, keepdim=True)),
        lambda here, there: there.lerp(here, 0.5),
    ],
)
def test_tensors_of_both_devices_do_not_mix(call):
    here = torch.randn(3, 3)
    with pytest.raises(RuntimeError, match=MIXED):
        call(here, torch.randn(3, 3).to("cuda"))


def test_a_number_may_lie_on_the_cpu():
    there, number = torch.ones(2, device="cuda"), torch.tensor(2.0)
    assert (there * number).tolist() == [2.0, 2.0]
    assert torch.where(there > 0, number, there).tolist() == [2.0, 2.0]


def test_indices_may_lie_on_the_cpu_but_not_the_other_way_round():
    here = torch.arange(3)
    there = here.to("cuda")
    assert there[torch.tensor([2, 0])].tolist() == [2, 0]
    assert there[here > 1].tolist() == [2]
    with pytest.raises(RuntimeError, match="indices should be either on cpu"):
        here[there]
    there[torch.tensor([0])] = 7
    there[0] = torch.tensor(7)  # a copy, which may cross
    assert there.tolist() == [7, 1, 2]


def test_numpy_wants_the_cpu():
    there = torch.ones(2, device="cuda")
    for take in (there.numpy, lambda: np.asarray(there)):
        with pytest.raises(TypeError, match="to host memory first"):
            take()
    assert there.cpu().numpy().tolist() == [1.0, 1.0]


def test_a_generator_belongs_to_its_device():
    with pytest.raises(RuntimeError, match="device type for generator"):
        torch.rand(2, generator=torch.Generator(), device="cuda")
    assert torch.rand(2, device="cuda").is_cuda


def test_values_and_branches_are_those_of_the_cpu():
    here = torch.randn(4, 5)
    there = here.to("cuda")
    assert there.sum().item() == here.sum().item()
    assert bool((there > 0).any()) == bool((here > 0).any())
    assert there.argmax(-1).tolist() == here.argmax(-1).tolist()
    assert torch.linalg.svdvals(there).cpu().equal(torch.linalg.svdvals(here))
    assert there.nonzero().cpu().equal(here.nonzero())
    assert not fakes_in([there[0, 0].item(), there.tolist(), there.cpu()])


def test_views_and_writing_reach_the_tensor():
    there = torch.zeros(2, 3, device="cuda")
    there[1].add_(1)
    there.t()[0].mul_(5)
    assert there.tolist() == [[0, 0, 0], [5, 1, 1]]
    with pytest.raises(NotImplementedError, match="shape in place"):
        there.unsqueeze_(0)


def test_gradients_flow_there_and_across():
    weight = torch.randn(3, requires_grad=True)
    (weight.to("cuda") ** 2).sum().backward()
    assert weight.grad is not None
    assert weight.grad.device.type == "cpu"
    assert weight.grad.equal(2 * weight.detach())
    jacobian = torch.func.jacrev(torch.sin)(torch.ones(2, device="cuda"))
    assert jacobian.is_cuda
    assert jacobian.cpu().allclose(torch.eye(2) * torch.cos(torch.tensor(1.0)))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
        self.second.weight = self.first.weight
        self.register_buffer("table", torch.ones(2))


def test_a_module_moves_whole_and_keeps_its_parameters():
    model = Tied()
    held, seen = model.first.weight, []
    held.register_post_accumulate_grad_hook(lambda w: seen.append(w))
    model.to("cuda")
    assert model.first.weight is held is model.second.weight
    assert isinstance(held, nn.Parameter)
    assert sorted(fakes_in(model))[0] == "first.bias"
    assert all(t.is_cuda for t in (*model.parameters(), *model.buffers()))
    model.second(model.first(torch.ones(1, 3, device="cuda"))).sum().backward()
    assert len(seen) == 1
    assert held.grad is not None
    assert held.grad.is_cuda
    again = copy.deepcopy(model)
    assert again.first.weight is again.second.weight
    assert isinstance(again.first.weight, nn.Parameter)
    model.to("cpu")
    assert not fakes_in(model)
    assert model.first.weight is model.second.weight
    assert fakes_in(again)


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.Adam])
@pytest.mark.parametrize("fused", [True, False])
def test_optimisers_step_there(kind, fused):
    def stepped(device: str) -> torch.Tensor:
        torch.manual_seed(0)
        net = nn.Linear(4, 4).to(device)
        updates = kind(net.parameters(), lr=0.1, fused=fused)
        for _ in range(3):
            updates.zero_grad()
            net(torch.ones(2, 4, device=device)).square().sum().backward()
            updates.step()
        return net.weight.detach().cpu()

    assert stepped("cuda").allclose(stepped("cpu"))


def test_hooks_of_the_backward_pass_see_the_device():
    weight = nn.Parameter(torch.ones(2, device="cuda"))
    lengths = torch.zeros(1, device="cuda")

    def look(w: torch.Tensor) -> None:
        assert w.grad is not None
        lengths[0] = torch.tensor([float(w.grad.norm())], device=w.device)[0]

    weight.register_post_accumulate_grad_hook(look)
    weight.sum().backward()
    assert lengths.cpu().allclose(torch.tensor(2.0).sqrt())


@pytest.mark.parametrize(
    "make",
    [
        lambda like: torch.tensor([1.0, 2.0], device="cuda", requires_grad=True),
        lambda like: torch.as_tensor(np.array([1.0, 2.0]), device=like.device),
        lambda like: torch.asarray([1.0, 2.0], device="cuda:0"),
        lambda like: like.new_tensor([1.0, 2.0]),
        lambda like: like.new_zeros(2) + torch.arange(1, 3, device="cuda"),
        lambda like: torch.as_tensor(like),
        lambda like: torch.full_like(like, 1.0).cumsum(0),
        lambda like: torch.empty_like(like, device="cpu").copy_(like).cuda(),
        lambda like: torch.ones(2).to(like).cumsum(0),
    ],
)
def test_tensors_are_made_there(make):
    made = make(torch.tensor([1.0, 2.0], device="cuda"))
    assert made.is_cuda
    assert made.tolist() == [1.0, 2.0]


def test_a_function_of_ones_own_runs_there():
    assert on_fake_cuda(lambda n: torch.ones(n, device="cuda"))(2).is_cuda
    assert isinstance(torch.ones(1, device="cuda"), FakeCuda)


def test_outside_there_is_no_such_device():
    code = (
        "import torch, fake_cuda\n"
        "before = torch.cuda.is_available()\n"
        "with fake_cuda.fake_cuda():\n"
        "    assert torch.cuda.is_available()\n"
        "assert torch.cuda.is_available() is before is False\n"
        "torch.nn.Linear(2, 2).double()\n"
        "try:\n"
        "    torch.zeros(1, device='cuda')\n"
        "except (RuntimeError, AssertionError):\n"
        "    print('gone')\n"
    )
    folder = Path(__file__).parent
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True
    )
    assert done.stdout == "gone\n"
