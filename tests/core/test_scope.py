"""Which documents may answer: all, some, none."""

import pytest

from catalog.core.scope import Scope


@pytest.mark.parametrize(
    ("scope", "is_all", "is_nothing", "allowed"),
    [
        (Scope.of(None), True, False, "abc"),
        (Scope.of(["a", "b"]), False, False, "ab"),
        (Scope.of(()), False, True, ""),
    ],
)
def test_a_scope_is_all_some_or_nothing(scope, is_all, is_nothing, allowed):
    assert (scope.is_all, scope.is_nothing) == (is_all, is_nothing)
    assert "".join(name for name in "abc" if scope.allows(name)) == allowed
    assert Scope.of(["a", "b", "a"]) == Scope.of(["b", "a"])
    with pytest.raises(TypeError, match="neither true nor false"):
        bool(scope)


def test_both_scopes_hold_when_they_are_joined():
    some, other = Scope.of(["a", "b"]), Scope.of(["b", "c"])
    assert some & other == Scope.of(["b"])
    assert some & Scope.of(None) == Scope.of(None) & some == some
    assert some & Scope.of(()) == Scope.of(()) & some == Scope.of(())
    assert some & Scope.of(["c"]) == Scope.of(())
    assert Scope.of(None) & Scope.of(None) == Scope.of(None)
