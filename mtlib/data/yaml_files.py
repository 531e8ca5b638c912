"""YAML, read so that a key that stands twice is refused.

PyYAML would take the last without a word.
"""

import yaml

# the loader in C takes 4 ms for the registry instead of 130
_Fastest = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def load_yaml(text: str) -> object:
    """What a YAML document says.

    Raises:
        yaml.YAMLError: it is no YAML, or a key stands twice in one mapping.
    """
    # before anything is made of them, because `<<` brings keys that may repeat
    _refuse_repeated_keys(yaml.compose(text, _Fastest))
    return yaml.load(text, _Fastest)


def _refuse_repeated_keys(node: yaml.Node | None) -> None:
    if isinstance(node, yaml.MappingNode):
        _check_keys(node)
        for _, value in node.value:
            _refuse_repeated_keys(value)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            _refuse_repeated_keys(value)


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
