"""From measured values to a verdict: claims, rules declared beforehand, statistics and kept results.

A claim lies in a registry with the rule that judges it, written down before anything is measured. What was
measured lies in results; whenever the book is printed, the rule is applied to them (`measuring.judging`). The
statistics can be used by themselves.

>>> import numpy as np
>>> from measured_book.evidence.registry import claim
>>> from measured_book.evidence.statistics import mean_difference
>>> short = np.array([1.2, 1.0, 1.1, 1.3, 0.9])   # one value a seed
>>> long = np.array([2.0, 2.1, 1.8, 2.3, 2.1])
>>> estimate = mean_difference(short, long, paired=True)
>>> round(estimate.effect, 2), estimate.p < 0.01
(-0.96, True)
>>> claim("CS-1.5").kind           # a row of the registry
'arithmetic'
"""
