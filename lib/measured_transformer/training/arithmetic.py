"""What a processor's arithmetic gives to the last bit: a digest by which machines are told apart.

The same code gives the same values to the last bit where PyTorch, oneDNN, MKL and OpenBLAS take the same
kernels. Which they take depends on the processor's instructions, model and caches, and its name says little of
these: two processors of one name may differ, and two of different names agree. So a handful of operations is
carried out on fixed numbers, and what comes of them is hashed.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

_SIZES = ((64, 16, 16), (640, 64, 64), (2048, 64, 256), (96, 256, 1024))
"""Rows, width in and width out of the products that are tried: those of small models."""


@lru_cache(maxsize=1)
def arithmetic() -> str:
    """The digest of this process's arithmetic on the CPU, with one thread: eight hexadecimal digits."""
    threads, told = torch.get_num_threads(), hashlib.sha256()
    torch.set_num_threads(1)
    try:
        with torch.enable_grad():
            for values in _of_torch():
                told.update(values.detach().contiguous().numpy().tobytes())
    finally:
        torch.set_num_threads(threads)
    for array in _of_numpy():
        told.update(np.ascontiguousarray(array).tobytes())
    return told.hexdigest()[:8]


def _numbers(*shape: int) -> np.ndarray:
    """Fixed numbers between -1 and 1, without a pattern that sums could cancel: made by whole numbers alone."""
    count = int(np.prod(shape))
    mixed = (np.arange(1, count + 1, dtype=np.uint64) * np.uint64(2654435761)) % np.uint64(2**32)
    return (mixed.astype(np.float64) / 2**31 - 1).reshape(shape)


def _of_torch() -> list[torch.Tensor]:
    found = []
    for kind in (torch.float32, torch.float64):
        for rows, d_in, d_out in _SIZES:
            x, weight, bias = (
                torch.from_numpy(_numbers(*shape)).to(kind).requires_grad_()
                for shape in ((rows, d_in), (d_out, d_in), (d_out,))
            )
            y = F.gelu(F.layer_norm(F.linear(x, weight, bias), (d_out,)))
            loss = torch.logsumexp(y, -1).mean() + y.tanh().square().sum().sqrt()
            found += [y, *torch.autograd.grad(loss, (x, weight, bias))]
        q = torch.from_numpy(_numbers(4, 2, 33, 16)).to(kind).requires_grad_()
        mixed = F.scaled_dot_product_attention(q, q * 0.5, q - 0.25, is_causal=True)
        pattern = (q @ q.mT).softmax(-1).exp().sin()
        (gradient,) = torch.autograd.grad(mixed.sum() + pattern.sum(), q)
        found += [mixed, pattern, gradient, q.flatten().cumsum(0), q.norm()]
    return found


def _of_numpy() -> list[np.ndarray]:
    found: list[np.ndarray] = []
    matrix: Any
    square: Any
    for kind in (np.float32, np.float64):
        matrix = _numbers(96, 64).astype(kind)
        square = matrix.T @ matrix
        found += [square, matrix @ matrix[0], np.exp(matrix), np.linalg.eigvalsh(square)]
        found += [np.linalg.svd(matrix, compute_uv=False), np.tanh(matrix).sum(0), matrix.mean(1)]
    return found
