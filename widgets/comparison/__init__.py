"""Two runs of one experiment side by side: what differs, figures, pictures on shared axes, words."""
