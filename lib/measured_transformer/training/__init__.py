"""Training one model from one seed, scoring it, and choosing learning rates that are fair to every arm.

The same seed gives the same weights and the same batches. `train` returns a `Run`, `evaluate` a `Score` on
sequences that training never drew.

>>> from measured_transformer import Config
>>> from measured_transformer.tasks.reversal import Reversal
>>> from measured_transformer.training.loop import evaluate, train
>>> task = Reversal(vocab=4, length=4)
>>> config = Config(vocab=4, d_model=32, n_layers=1, n_heads=2)
>>> run = train(config, task, steps=60, learning_rate=3e-3, seed=0)
>>> bool(run.losses[-1] < run.losses[0])
True
>>> evaluate(run.model, task, seed=0).accuracy > 0.5
True
"""
