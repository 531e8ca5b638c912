"""What the rows of a table are made of: cells, words, other forms such as addresses, labels."""
