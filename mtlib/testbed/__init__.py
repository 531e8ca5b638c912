"""The bundled data: three tasks with a planted shortcut of adjustable strength.

See data/testbed/README.md.
"""

from mtlib.testbed.generator import generate, shortcut_label, write
from mtlib.testbed.grammar import load_grammar

__all__ = ["generate", "load_grammar", "shortcut_label", "write"]
