"""What is shown in a page: attention to look through, a workbench for a whole model, a model that runs there.

`attention` shows patterns by layer, head and token; `workbench` shows what a model does with a sentence; `live`
lets a reader type and experiment. All write HTML that loads nothing from elsewhere, with a drawing in its place
where scripts do not run. `style` has the palette and the light and dark themes, which any figure may use.

>>> import torch
>>> from measured_transformer.viewer.attention import attention_viewer
>>> pattern = torch.ones(4, 3, 3).tril() / torch.arange(1, 4)[:, None]      # 4 heads of one layer, 3 tokens
>>> attention_viewer(pattern[None], ["the", "old", "cat"])
AttentionViewer(1 example, 1 layer of 4 heads)
"""
