"""The pages' server: Voila with the lab's template, safe defaults and kernels that end with their page."""
