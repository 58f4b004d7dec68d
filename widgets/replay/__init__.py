"""A method that takes a matrix column by column, and moves later columns to make up: frames, pictures, the section."""
