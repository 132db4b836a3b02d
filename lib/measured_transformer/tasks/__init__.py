"""Tasks: synthetic ones with an exact answer and a known best loss, number words, and real text.

A task makes batches from a seeded generator and says which answers count. Most know their floors, such as the
loss of a model that sees the tokens but not their order, so that a measured loss has something to be
compared with.

>>> import torch
>>> from measured_transformer.tasks.reversal import Reversal
>>> task = Reversal(vocab=12, length=6)
>>> batch = task.batch(torch.Generator().manual_seed(0), size=64)
>>> bool(torch.equal(batch.targets[0], batch.inputs[0].flip(0)))
True
>>> round(task.bag_loss(), 2)      # in nats: knowing the tokens, not their order
1.39
"""
