"""The same words by two models: what pages share whose run changes a model and lets both write."""
