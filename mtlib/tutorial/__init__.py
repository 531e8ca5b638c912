"""What the notebooks need: their runner, and what they show."""
