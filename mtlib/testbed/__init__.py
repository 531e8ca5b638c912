"""The bundled data: three tasks whose shortcut is planted, measured and adjustable. See data/testbed/README.md."""

from mtlib.testbed.generator import agreement, generate, shortcut_label, write

__all__ = ["agreement", "generate", "shortcut_label", "write"]
