"""The reproduction study: its plan, the paper's tables, and the claims."""
