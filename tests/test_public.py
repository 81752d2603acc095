"""The public names are exactly those that are promised."""

import types

import soothsay


def test_all_is_what_is_visible() -> None:
    assert all(hasattr(soothsay, name) for name in soothsay.__all__)  # which also loads what comes late
    visible = {name for name, value in vars(soothsay).items() if not isinstance(value, types.ModuleType)}
    assert set(soothsay.__all__) == {name for name in visible if not name.startswith("_")}
    assert soothsay.__all__ == sorted(soothsay.__all__)


def test_every_error_that_is_raised_on_purpose_is_public() -> None:
    tree = [soothsay.SoothsayError]
    for error in tree:
        tree += error.__subclasses__()
    ours = {error.__name__ for error in tree if error.__module__ == "soothsay.errors"}
    assert ours <= set(soothsay.__all__)
