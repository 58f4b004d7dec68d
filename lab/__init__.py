"""Inference Lab: live, checked experiments in efficient inference of language models.

This package is the backend. It imports no ipywidgets, bokeh or IPython, and importing it
does not load torch.
"""

__version__ = "0.1.0"
