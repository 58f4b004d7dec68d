"""A run as one HTML file that opens from disk: the page's own views, drawn without a kernel, server or network."""
