"""Running, grading and publishing the notebooks, and the exercises in them."""
