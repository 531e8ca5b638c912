"""Where the paper's data comes from, how it is read, and how predictions are scored."""
