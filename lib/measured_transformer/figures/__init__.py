"""From a measurement to a figure: one palette, a light and a dark theme, and diagrams of the architecture.

A figure function is plain matplotlib, decorated with `themed`; called, it draws the figure for light and for
dark pages. The book's own figures show how it is used; those of `plots` serve any measurement.

>>> import numpy as np
>>> from measured_transformer.figures.plots import seed_lines, subplots
>>> from measured_transformer.figures.style import themed
>>> @themed
... def learning(steps, losses):
...     figure, axes = subplots()
...     seed_lines(axes, steps, losses, concept="rotary")
...     axes.set_xlabel("step")
...     return figure
>>> drawn = learning(np.arange(10), np.random.rand(5, 10))      # five seeds
>>> type(drawn).__name__
'ThemedFigure'
"""
