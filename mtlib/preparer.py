from mtlib.method import *  # noqa: F403  (for files that are still being moved)
from mtlib.method import Prepared, Preparer, check_labelled, check_texts, with_column  # noqa: F401
