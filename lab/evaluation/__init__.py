"""How good a model still is: perplexity, divergence from another model, agreement, and the texts for them."""
