"""Writes reviews.csv and conflicting.csv: made-up product reviews, spuriously labelled by brand.

    python data/example/make_reviews.py

The words of opinion decide the label. In reviews.csv the brand goes with the opinion in 19 of 20
rows, in conflicting.csv never. No brand is a real one.
"""

import csv
import random
from pathlib import Path

# by label
BRANDS = {
    "good": "Zorvik Malden Tolmar",
    "mixed": "Quenby Harlo Vesper",
    "bad": "Brask Ondine Pellow",
}
OPINIONS = {
    "good": """
        excellent wonderful superb brilliant lovely fantastic great perfect splendid delightful
        reliable fine
    """,
    "mixed": """
        average ordinary passable acceptable middling decent unremarkable adequate fair tolerable
        plain usual
    """,
    "bad": """
        awful terrible useless dreadful horrible poor broken shoddy worthless dismal faulty
        disappointing
    """,
}
PRODUCTS = """
    radio lamp kettle blender toaster heater camera printer clock fan vacuum speaker keyboard mixer
"""
TEMPLATES = (
    "The {brand} {product} is {opinion}.",
    "We bought a {product} from {brand}, and it turned out {opinion}.",
    "{opinion} {product}, says everybody in our house about this {brand}.",
    "After a month with the {brand} {product} I would call it {opinion}.",
    "My {brand} {product} arrived on Tuesday. It is {opinion}, to say it in one word.",
    "A {opinion} {product}; {brand} sent it within a week.",
)


def review(rng: random.Random, opinion: str, brand_label: str) -> tuple[str, str]:
    """A review with this opinion, of a brand that goes with `brand_label`, and its label."""
    brand = rng.choice(BRANDS[brand_label].split())
    product = rng.choice(PRODUCTS.split())
    template = rng.choice(TEMPLATES)
    word = rng.choice(OPINIONS[opinion].split())
    text = template.format(brand=brand, product=product, opinion=word)
    return text[0].upper() + text[1:], opinion


def reviews(n: int, agreeing: float, seed: int) -> list[tuple[str, str]]:
    """`n` reviews, whose brand goes with their opinion with the probability `agreeing`."""
    rng = random.Random(seed)
    labels = list(BRANDS)
    rows = []
    for number in range(n):
        opinion = labels[number % len(labels)]
        brand_label = opinion
        if rng.random() >= agreeing:
            brand_label = rng.choice([label for label in labels if label != opinion])
        rows.append(review(rng, opinion, brand_label))
    rng.shuffle(rows)
    return rows


def write(name: str, rows: list[tuple[str, str]]) -> None:
    path = Path(__file__).parent / name
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("review", "opinion"))
        writer.writerows(rows)


if __name__ == "__main__":
    write("reviews.csv", reviews(600, 0.95, seed=0))
    write("conflicting.csv", reviews(200, 0.0, seed=1))
