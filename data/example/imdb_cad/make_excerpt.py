"""Draw the excerpt: 100 short pairs of IMDB-CAD's training set.

    python data/example/imdb_cad/make_excerpt.py FOLDER

FOLDER is a folder of original releases, as `python -m mtlib run --source` reads it, or "hub".
"""

import random
import sys
from pathlib import Path

from mtlib.data.sources import load

LONGEST = 700  # characters, of both texts
rows = load("imdb_cad_train", sys.argv[1]).to_pandas()
rows["pair"] = rows["group"].str.rpartition(":")[0]
short = rows.groupby("pair", sort=False)["text"].agg(lambda texts: texts.str.len().max() <= LONGEST)
drawn = random.Random(0).sample(sorted(short.index[short]), 100)
excerpt = rows[rows["pair"].isin(drawn)].drop(columns="pair")
path = Path(__file__).with_name("pairs.jsonl")
excerpt.to_json(path, orient="records", lines=True, force_ascii=False)
