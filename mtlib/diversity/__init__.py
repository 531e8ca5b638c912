"""What masked tokens turn into (Section V of the paper)."""
