"""Weights set to zero: one method a file over a thin contract."""
