"""Quantization: what happens to a layer, to its output and to the model's words."""
