"""Statistics, tables and figures from run records."""
