"""The bundled data: three tasks whose shortcut is planted, measured and adjustable. See data/testbed/README.md."""

from mtlib.testbed.generator import agreement, generate, shortcut_label, shortcut_words, write
from mtlib.testbed.grammar import load_grammar

__all__ = ["agreement", "generate", "load_grammar", "shortcut_label", "shortcut_words", "write"]
