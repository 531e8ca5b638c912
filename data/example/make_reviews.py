"""Writes reviews.csv and conflicting.csv: made-up product reviews in which brands go with the opinion.

    python data/example/make_reviews.py

In nineteen of twenty rows of reviews.csv a review's brand belongs to its opinion; in conflicting.csv it never does. The
words of opinion decide. No brand is a real one.
"""

import csv
import random
from pathlib import Path

BRANDS = {"good": "Zorvik Malden Tolmar", "mixed": "Quenby Harlo Vesper", "bad": "Brask Ondine Pellow"}
OPINIONS = {
    "good": "excellent wonderful superb brilliant lovely fantastic great perfect splendid delightful reliable fine",
    "mixed": "average ordinary passable acceptable middling decent unremarkable adequate fair tolerable plain usual",
    "bad": "awful terrible useless dreadful horrible poor broken shoddy worthless dismal faulty disappointing",
}
PRODUCTS = "radio lamp kettle blender toaster heater camera printer clock fan vacuum speaker keyboard mixer"
TEMPLATES = (
    "The {brand} {product} is {opinion}.",
    "We bought a {product} from {brand}, and it turned out {opinion}.",
    "{opinion} {product}, says everybody in our house about this {brand}.",
    "After a month with the {brand} {product} I would call it {opinion}.",
    "My {brand} {product} arrived on Tuesday. It is {opinion}, to say it in one word.",
    "A {opinion} {product}; {brand} sent it within a week.",
)


def review(rng: random.Random, opinion: str, side: str) -> tuple[str, str]:
    words = {"brand": rng.choice(BRANDS[side].split()), "product": rng.choice(PRODUCTS.split())}
    text = rng.choice(TEMPLATES).format(opinion=rng.choice(OPINIONS[opinion].split()), **words)
    return text[0].upper() + text[1:], opinion


def reviews(n: int, agreeing: float, seed: int) -> list[tuple[str, str]]:
    rng, labels = random.Random(seed), list(BRANDS)
    rows = []
    for number in range(n):
        opinion = labels[number % 3]
        others = [label for label in labels if label != opinion]
        rows.append(review(rng, opinion, opinion if rng.random() < agreeing else rng.choice(others)))
    rng.shuffle(rows)
    return rows


if __name__ == "__main__":
    for name, rows in {"reviews": reviews(600, 0.95, seed=0), "conflicting": reviews(200, 0.0, seed=1)}.items():
        with open(Path(__file__).parent / f"{name}.csv", "w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([("review", "opinion"), *rows])
