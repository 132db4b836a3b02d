"""From a measurement to a figure: one palette, a light and a dark theme, and diagrams of the architecture.

A figure function is plain matplotlib, decorated with `themed`; called, it draws the figure for light and for
dark pages. The book's own figures show how it is used; the plots of `style` serve any measurement.

>>> import numpy as np
>>> from measured_transformer.figures.style import seed_lines, subplots, themed
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
