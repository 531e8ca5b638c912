"""Running and grading the notebooks, and the exercises in them."""
