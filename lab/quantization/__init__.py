"""Quantization: methods over a thin contract, and packed kernels that really run."""
