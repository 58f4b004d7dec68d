"""Experiments: parameters in, events out."""
