"""The index page: a card for each experiment, and a path through them with questions to answer before looking."""
