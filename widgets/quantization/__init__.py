"""The views of the `quantization` page."""
