"""Compare plain values with the types that are declared for them."""

import typing

from fedgranger.typed_facts import Facts, fields_of


def mismatches(value, kind, path="manifest"):
    """Sentences on every key that is unknown, absent or of another type."""
    if isinstance(kind, type) and issubclass(kind, Facts):
        hints, defaults = fields_of(kind), kind._defaults
        found = [f"{path}.{key}: not declared" for key in value if key not in hints]
        for key, hint in hints.items():
            if key in value:
                found += mismatches(value[key], hint, f"{path}.{key}")
            elif defaults.get(key, ...) is not None:  # others are for what older versions lack
                found.append(f"{path}.{key}: absent")
        return found
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin is dict and isinstance(value, dict):
        return [m for k, v in value.items() for m in mismatches(v, parts[1], f"{path}[{k}]")]
    if origin is list and isinstance(value, list):
        return [m for v in value for m in mismatches(v, parts[0], f"{path}[]")]
    if parts and origin not in (dict, list):  # a union
        return [] if any(not mismatches(value, part, path) for part in parts) else [path]
    allowed = (int, float) if kind is float else origin or kind
    is_right = kind is typing.Any or (
        isinstance(value, allowed) and (kind is bool or not isinstance(value, bool))
    )
    return [] if is_right else [f"{path}: {value!r} is no {kind}"]
