"""The bundled data: three tasks with a planted shortcut of adjustable strength.

See data/testbed/README.md.
"""

from mtlib.testbed.generator import generate, write

__all__ = ["generate", "write"]
