"""Rules by name."""

import pytest

from soothsay.errors import OptionError
from soothsay.verify import Noise, Rule, verifier
from tests.verify.toys import dense, toy


def test_an_unknown_rule_names_the_legal_ones() -> None:
    with pytest.raises(OptionError, match=r"^verify is 'typical'; it must be one of coupled, block, token$"):
        Rule("typical")


@pytest.mark.parametrize("rule", Rule)
def test_a_verifier_has_no_state(rule: Rule) -> None:
    """The same step, asked for again after others, gives the same draft and verdict."""
    judge, p, q = verifier(rule, Noise(4)), toy(4, 1, dense), toy(4, 2, dense)

    def answer(start: int) -> object:
        tokens = [judge.drafting(start)(q((index,)), start + index) for index in range(3)]
        return tokens, judge.verify([p((i,)) for i in range(4)], tokens, [q((i,)) for i in range(3)], start)

    first = [answer(start) for start in range(20)]
    assert [answer(start) for start in reversed(range(20))] == first[::-1]
    assert len({str(one) for one in first}) > 1


@pytest.mark.parametrize("rule", [Rule.BLOCK, Rule.TOKEN])
def test_a_law_for_each_drafted_token_or_none_at_all(rule: Rule) -> None:
    p = toy(4, 1, dense)
    with pytest.raises(ValueError, match="shorter"):
        verifier(rule, Noise(4)).verify([p((i,)) for i in range(4)], (1, 2, 3), [p((9,))] * 2, 0)
