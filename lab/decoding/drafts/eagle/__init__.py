"""An EAGLE-style draft head (Li et al. 2024, arXiv 2401.15077): module, its data, its training, its figures."""
