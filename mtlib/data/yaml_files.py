"""YAML, read so that a key that stands twice is refused.

PyYAML would take the last without a word.
"""

import yaml

# the loader in C takes 4 ms for the registry instead of 130
_Fastest = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _UniqueKeys(_Fastest):
    """Checks the keys before anything is made of them, because `<<` brings keys that may repeat."""

    def get_single_node(self) -> yaml.Node | None:
        document = super().get_single_node()
        _refuse_repeated_keys(document)
        return document


def load_yaml(text: str) -> object:
    """What a YAML document says.

    Raises:
        yaml.YAMLError: it is no YAML, or a key stands twice in one mapping.
    """
    return yaml.load(text, _UniqueKeys)


def _refuse_repeated_keys(document: yaml.Node | None) -> None:
    seen = set()  # an alias leads to a node that is there already
    queue = [document]
    while queue:
        node = queue.pop()
        if not isinstance(node, yaml.CollectionNode) or id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            _check_keys(node)
            queue += [value for _, value in node.value]
        else:
            queue += node.value


def _check_keys(mapping: yaml.MappingNode) -> None:
    lines = {}
    for key, _ in mapping.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            continue
        name = (key.tag, key.value)
        if name in lines:
            message = f"{key.value!r} stands twice, in line {lines[name]} and again in line {line}"
            raise yaml.YAMLError(message)
        lines[name] = line
