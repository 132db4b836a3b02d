"""What is shown in a page: attention that can be looked through, and a workbench for a whole model.

`attention` shows patterns by layer, head and token; `workbench` shows what a model does with a sentence. Both
write HTML that loads nothing from elsewhere, with a drawing in its place where scripts do not run. `style` has
the palette and the light and dark themes, which any figure may use.

>>> import numpy as np
>>> from measured_transformer.viewer.attention import attention_viewer
>>> pattern = np.tril(np.ones((1, 4, 3, 3))) / np.arange(1, 4)[:, None]      # one layer of 4 heads, 3 tokens
>>> attention_viewer({"blocks.0.attention.pattern": pattern}, ["the", "old", "cat"])
AttentionViewer(1 example, 1 layer of 4 heads)
"""
