"""What the backend answers to the pruning page's question of the worked example."""

from __future__ import annotations

EXAMPLE = {
    "weights": [[0.5, -0.1, 0.3], [0.05, -0.8, 0.2]],
    "magnitudes": [[0.5, 0.1, 0.3], [0.05, 0.8, 0.2]],
    "ranks": [[5, 2, 4], [1, 6, 3]],
    "pruned": 3,
    "threshold": 0.2,
    "kept": [[True, False, True], [False, True, False]],
    "became": [[0.5, 0.0, 0.3], [0.0, -0.8, 0.0]],
    "sparsity": 0.5,
}
"""As `magnitude_example` gives it."""
