import gc

from trilab.bench.turns import take_turns, timed


def test_each_way_is_measured_once_a_round_and_the_order_changes_between_rounds() -> None:
    order: list[str] = []

    def way(name: str, value: float) -> float:
        order.append(name)
        return value

    found = take_turns({"a": lambda: way("a", 1.0), "b": lambda: way("b", 2.0)}, 12)

    assert found == {"a": [1.0] * 12, "b": [2.0] * 12}
    rounds = [tuple(order[k : k + 2]) for k in range(0, 24, 2)]
    assert {frozenset(one) for one in rounds} == {frozenset("ab")}
    assert len(set(rounds)) == 2


def test_the_order_of_the_turns_is_the_same_for_the_same_seed() -> None:
    def orders(seed: int) -> list[str]:
        order: list[str] = []
        take_turns({name: lambda name=name: order.append(name) or 0.0 for name in "abcdef"}, 3, seed=seed)
        return order

    assert orders(1) == orders(1)
    assert orders(1) != orders(2)


def test_garbage_is_not_collected_amid_a_turn_but_again_afterwards() -> None:
    assert take_turns({"a": lambda: float(gc.isenabled())}, 2) == {"a": [0.0, 0.0]}
    assert gc.isenabled()


def test_a_turn_repeats_work_that_is_too_short_for_a_clock() -> None:
    calls = []
    turn = timed(lambda: calls.append(1), least=0.001)
    warm = len(calls)
    assert warm == 2
    assert 0 < turn() < 0.001
    assert len(calls) - warm > 10
