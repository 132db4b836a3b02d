"""What is measured: a training step, a forward pass, a forward pass that is captured, decoding."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from measured_transformer.parts.kernels.linear import linear_kernel
from torch import Tensor
from torch.nn import functional as F

from benchmarks.contenders import Contender, Ours, OursFastest
from benchmarks.measure import Workload


def drawn_tokens(contender: Contender) -> Tensor:
    """Tokens of every contender alike: one more than a sequence holds, for the targets."""
    size = contender.size
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(size.vocab, (size.batch, size.length + 1), generator=generator)
    return tokens.to(size.device)


def training_step(contender: Contender) -> Workload:
    """Forward pass, mean cross-entropy, backward pass, one step of AdamW."""
    tokens = drawn_tokens(contender)
    inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    optimiser = torch.optim.AdamW(contender.model.parameters(), lr=1e-4)

    contender.model.train()

    def work() -> None:
        optimiser.zero_grad()
        with precision(contender):
            logits = contender.logits(inputs)
            loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        loss.backward()
        optimiser.step()

    return work


def inference(contender: Contender) -> Workload:
    """Forward pass without gradients."""
    inputs = drawn_tokens(contender)[:, :-1].contiguous()

    contender.model.eval()

    def work() -> None:
        with torch.inference_mode(), precision(contender):
            contender.logits(inputs)

    return work


def captured(contender: Contender, *, everything: bool) -> Workload:
    """Forward pass that keeps every pattern and residual state, or every value that has a name."""
    inputs = drawn_tokens(contender)[:, :-1].contiguous()

    contender.model.eval()

    def work() -> None:
        with torch.inference_mode(), precision(contender):
            contender.capture(inputs, everything)

    return work


def written_out(contender: Ours) -> Workload:
    """Forward pass with explicit attention, of which nothing is kept."""
    inputs = drawn_tokens(contender)[:, :-1].contiguous()

    contender.model.eval()

    def work() -> None:
        with torch.inference_mode(), precision(contender):
            contender.explicit(inputs)

    return work


def decoding(contender: Contender) -> Workload:
    """Greedy decoding with a cache, from a short prompt to the full length."""
    size = contender.size
    prompt = drawn_tokens(contender)[:, : size.prompt].contiguous()

    contender.model.eval()

    def work() -> None:
        with torch.inference_mode(), precision(contender):
            written = contender.decode(prompt, size.length - size.prompt)
        assert written.shape == (size.batch, size.length - size.prompt), written.shape

    return work


def precision(contender: Contender) -> AbstractContextManager[object]:
    """The device's precision (float32 on a CPU, bfloat16 by autocast on a GPU), or a contender's kernel."""
    if isinstance(contender, OursFastest):
        return linear_kernel("fastest")
    if contender.size.device == "cpu":
        return nullcontext()
    return torch.autocast("cuda", dtype=torch.bfloat16)
