"""Fast code that is hard to read: it computes the values of the plain form in another way.

Nobody needs it to understand a model; the parts call it.

>>> import torch
>>> from measured_transformer.parts.kernels.linear import linear
>>> x, weight = torch.randn(2, 3), torch.randn(5, 3)
>>> torch.allclose(linear(x, weight, None), x @ weight.T, atol=1e-6)
True
"""
