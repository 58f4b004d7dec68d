"""Models: which there are, fetching, converting and loading them, and their facts."""
