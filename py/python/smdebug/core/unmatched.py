"""What of a configuration saves nothing: collections without names and patterns, and patterns that
no tensor's name has.
"""

import re

#: How many names are listed of those that there are.
_TOLD = 20


def unmatched(saved, defaults: dict, names) -> list[str]:
    """A line for each; `defaults` are the framework's collections and their patterns, `names` the
    tensors that there are.
    """
    there = sorted(names)
    listed = ", ".join(there[:_TOLD]) + (f" and {len(there) - _TOLD} more" if len(there) > _TOLD else "")
    lines = []
    for one in sorted(saved, key=lambda one: one.name):
        if one.name not in defaults and not one.include_regex and not one.tensor_names:
            lines.append(
                f"The collection {one.name} is none of the framework's ({', '.join(sorted(defaults))}) and has no "
                "include_regex: only what the script saves into it (save_tensor) is in it"
            )
        own = [pattern for pattern in one.include_regex if pattern not in defaults.get(one.name, ())]
        for pattern in own:
            if not any(re.search(pattern, name) for name in there):
                lines.append(f"No tensor has a name that {pattern} (collection {one.name}) fits. There are: {listed}")
    return lines
