"""Low-bit weights that stay packed while the model runs."""
