"""Text through a model, layer after layer: what methods learn from that look at a layer's inputs."""
