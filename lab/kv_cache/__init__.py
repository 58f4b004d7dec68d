"""What the key/value cache holds and costs: by formula, counted from tensors, and as it might be."""
