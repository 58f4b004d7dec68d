"""What experiments share that run changed models beside the dense one: texts, matrices, words, the verdict."""
