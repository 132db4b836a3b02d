"""From a measurement to a figure: one palette, a light and a dark theme, and diagrams of the architecture.

A function that draws a figure is called `plot_` and what it shows. It is plain matplotlib, decorated with
`themed`; called, it draws the figure for light and for dark pages. Functions that draw into axes that they are
given (`plots`, `diagrams`) are called by what they draw.

>>> import numpy as np
>>> from measured_book.figures.plots import seed_lines, subplots
>>> from measured_transformer.viewer.style import themed
>>> @themed
... def plot_learning(steps, losses):
...     figure, axes = subplots()
...     seed_lines(axes, steps, losses, concept="rotary")
...     axes.set_xlabel("step")
...     return figure
>>> drawn = plot_learning(np.arange(10), np.random.rand(5, 10))      # five seeds
>>> type(drawn).__name__
'ThemedFigure'
"""
