"""`shoal.parallel` as a Python program uses it; what the plans themselves promise is tested in
crates/parallel.
"""

import math
import re
from pathlib import Path

import pytest
from shoal.parallel import (
    Accumulation,
    Cost,
    Cursor,
    Invalid,
    Launches,
    Layout,
    Link,
    LossScale,
    Machine,
    Mesh,
    Module,
    Outer,
    Rate,
    Share,
    Streaming,
    Tensor,
    advise,
    buckets,
    chain,
    lamb_ratio,
    lamb_step,
    lars_ratio,
    lars_step,
    meeting,
    reshard,
    schedule,
    simulated_rate_factor,
    tensor_part,
    tree,
    zero_bytes,
)


def test_rates_follow_the_simulated_world_where_the_job_says_so():
    by_size = {"SHOAL_SIMULATE_RATE": "by_size"}
    assert (simulated_rate_factor({}, 8, 2), simulated_rate_factor(by_size, 8, 2)) == (1.0, 4.0)
    assert simulated_rate_factor({"SM_HPS": '{"shoal_simulate_rate": "by_size"}'}, 8, 2) == 4.0
    with pytest.raises(ValueError, match="give by_size"):
        simulated_rate_factor({"SHOAL_SIMULATE_RATE": "yes"}, 8, 2)


def test_ranks_have_places_and_groups():
    mesh = Mesh(8, pipeline=2, tensor=2)
    assert mesh.world == 8 and mesh.size("pipeline", "tensor") == 4
    assert mesh.coordinates(5) == {"data": 1, "shard": 0, "context": 0, "pipeline": 0, "tensor": 1}
    assert mesh.rank(data=1, tensor=1) == 5 and mesh.position(5, "data") == 1
    assert mesh.group(5, "data") == [1, 5] and mesh.groups("pipeline", "tensor") == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert Mesh(8, pipeline=2, placement="spread").group(0, "pipeline") == [0, 4]


@pytest.mark.parametrize(
    ("ask", "field", "nearest"),
    [
        (lambda: Mesh(8, tensor=3), "tensor", [2, 4]),
        (lambda: Mesh(8, placement="around"), "placement_strategy", []),
        (lambda: Mesh(8).coordinates(8), "rank", [7]),
        (lambda: Mesh(8).rank(tensor=1), "tensor", [0]),
        (lambda: Accumulation(8, 3), "simulate", [6, 9]),
        (lambda: Accumulation(-8, 2), "simulate", [0]),
        (lambda: Accumulation("8", 2), "simulate", [0]),
        (lambda: Accumulation(8, 2).at(2, 0), "rank", [1]),
        (lambda: LossScale(0), "passes", [1]),
        (lambda: LossScale(2).step(False), "passes", []),
        (lambda: Rate(0.1, warmup=5, decay={"kind": "cosine", "until": 5, "end": 0}), "until", [6]),
        (lambda: Rate(0.1, warmup=-1), "warmup", [0]),
        (lambda: Rate(0.1, decay="cosine"), "decay", []),
        (lambda: Rate(0.1, scaling="cubic"), "scaling", []),
        (lambda: Cursor(10, position=(0, 11)), "read", [10]),
        (lambda: buckets([], cap=1000), "cap", [960, 1024]),
        (lambda: Launches([]).ready(0), "gradient", []),
        (lambda: schedule("interleaved", 4, 6), "microbatches", [4, 8]),
        (lambda: chain([1.0], 2), "stages", [1]),
        (lambda: tensor_part(Tensor([4, 6], 4), 1, 4, 0), "tensor", [3, 6]),
        (lambda: zero_bytes(4, 1, 1), "zero", [3]),
        (lambda: Streaming(4, 5).at(0), "fragments", [4]),
        (lambda: meeting(0, period=0), "period", [1]),
    ],
)
def test_what_cannot_be_names_the_field_and_what_can(ask, field, nearest):
    with pytest.raises(Invalid) as caught:
        ask()
    assert isinstance(caught.value, ValueError)
    assert (caught.value.field, caught.value.nearest) == (field, nearest)
    assert str(caught.value).startswith(f"{field}: ")


def test_two_ranks_train_as_four_workers():
    plan = Accumulation(4, 2)
    assert plan.passes() == 2 and plan.factor("average") == 0.5 and plan.steps_per_epoch(100, 5) == 5
    assert [tuple(plan.at(1, number)) for number in range(3)] == [(0, 0, 1, False), (0, 1, 3, True), (1, 0, 1, False)]
    assert [Accumulation(4, 3, uneven=True).passes(rank) for rank in range(3)] == [2, 1, 1]
    with pytest.raises(ValueError, match="unknown variant"):
        plan.factor("median")


def test_a_scale_changes_between_steps_only():
    scale = LossScale(passes=2, initial=8.0, interval=2)
    for finite, applied, expected in [(True, True, 8.0), (True, True, 16.0), (False, False, 8.0)]:
        assert not scale.add(True)
        assert scale.add(finite) and scale.found is not finite
        assert scale.step(found=scale.found) is applied and scale.scale == expected
    other = LossScale(passes=1)
    other.load_state_dict(scale.state_dict())
    assert other.scale == 8.0 and other.add(True) and other.step(False)
    assert other.state_dict() == {**scale.state_dict(), "passes": 1, "clean": 1}


def test_rates_follow_steps():
    rate = Rate(0.1, times=8, warmup=4, decay={"kind": "step", "at": [30], "factor": 0.1})
    assert [rate(step) for step in (0, 2, 4, 30)] == pytest.approx([0.1, 0.45, 0.8, 0.08])
    assert rate.momentum_correction(30) == pytest.approx(0.1)
    with pytest.raises(ValueError, match="unknown variant"):
        Rate(0.1, decay={"kind": "sudden"})


def test_samples_are_read_once_while_the_world_changes():
    cursor = Cursor(100, seed=7)
    read = []
    for workers, batch in [(4, 5), (2, 10), (3, 7), (5, 4), (8, 8)]:
        for worker in range(workers):
            read += cursor.batch(workers, batch, worker)
        ended = cursor.finish(workers, batch)
    assert ended and sorted(read) == list(range(100)) and read != sorted(read) and cursor.position == (1, 0)
    plain = Cursor(10, shuffle=False, tail="pad", position=(0, 8))
    assert plain.batch(4, 1, 3) == [1] and plain.positions(4, 1, 3) == [1] and plain.steps_left(4, 1) == 1


def test_buckets_fill_from_the_end():
    found = buckets([(50, 0), (60, 0), (30, 0), (200, 0), (10, 0), (15, 0)], cap=100, first_cap=20, align=10)
    assert [bucket.members for bucket in found] == [[(5, 0)], [(4, 0)], [(3, 0)], [(2, 0), (1, 30)], [(0, 0)]]
    launches = Launches(found)
    assert launches.ready(4) == [] and launches.ready(5) == [0, 1] and launches.unready() == [0, 1, 2, 3]


def test_schedules_are_lists_that_can_be_played():
    flush = schedule("1f1b", 4, 8)
    assert flush.ranks[3][:2] == [(3, 0, "forward"), (3, 0, "backward")] and flush.ranks[0][0].work == "forward"
    timing = flush.check()
    assert timing.idle == pytest.approx(3 / 11) and timing.activations == [4, 3, 2, 1]
    assert schedule("interleaved", 4, 8, chunks=2).check().idle == pytest.approx(3 / 19)
    assert schedule("zero_bubble", 4, 8).check(1, 1, 1).total == 8 * 3 + 3
    assert schedule("dynamic", 4, 8, active=1).check().total == 4 * 8 * 3
    assert schedule("gpipe", 2, 2).check([1.0, 5.0], transfer=1.0).total > 2 * 5
    flush.ranks[0].pop()
    with pytest.raises(ValueError, match="nobody computes"):
        flush.check()


def test_layers_become_stages():
    assert chain([4, 1, 1, 1, 1, 1, 1, 1, 1], 3) == [0, 1, 5]
    assert chain([1] * 4, 2, memory=[3, 1, 1, 1], limit=3) == [0, 1]
    with pytest.raises(ValueError, match="1 sizes for 2 layers"):
        chain([1, 1], 2, memory=[3])
    model = Module(children=[Module(1.0, parameters=[layer]) for layer in range(8)])
    assert tree(model, [10] * 8, 4) == [0, 0, 0, 1, 1, 2, 2, 3, 3]


def test_state_moves_from_one_layout_to_another():
    tensors = [Tensor([4, 6], 4), Tensor([6], 4)]
    one = Layout(Mesh(2, shard=2), [0, 0], [None, None], sharded=True)
    other = Layout(Mesh(4, pipeline=2, tensor=2), [0, 1], [1, None])
    memory = {rank: bytearray(one.bytes(tensors, rank)) for rank in range(2)}
    for rank, held in memory.items():
        for piece in one.pieces(tensors, rank):
            held[piece.at : piece.at + piece.bytes] = bytes(
                1 + piece.tensor * 96 + piece.start + byte for byte in range(piece.bytes)
            )
    new = {rank: bytearray(other.bytes(tensors, rank)) for rank in range(4)}
    for it in reshard(tensors, one, other):
        new[it.to_rank][it.to_at : it.to_at + it.bytes] = memory[it.from_rank][it.from_at : it.from_at + it.bytes]
    assert bytes(new[0][:12]) == bytes(range(1, 13)) and bytes(new[1][:12]) == bytes(range(13, 25)) and new[2] == new[3]
    with pytest.raises(Invalid, match="no rank that is left has byte"):
        reshard(tensors, one, other, lost=[1], was=[0, None, None, None])
    assert tensor_part(tensors[0], 1, 3, 1) == [(8, 16), (32, 40), (56, 64), (80, 88)]
    assert zero_bytes(3, 7_500_000_000, 64, precision=(2, 2, 12)) == 1_875_000_000


def test_formulas_are_there_for_reference():
    weights, gradient = [0.5, -1.25, 2.0, 0.75, -0.1], [0.1, 0.2, -0.3, 0.05, 0.4]
    stepped, velocity = lars_step(8.0, weights, gradient, [0.0] * 5)
    ratio = lars_ratio(sum(it * it for it in weights), sum(it * it for it in gradient))
    assert stepped == pytest.approx([w - 8 * ratio * (g + 5e-4 * w) for w, g in zip(weights, gradient)])
    assert velocity == pytest.approx([w - s for w, s in zip(weights, stepped)], abs=1e-6)
    stepped, first, second = lamb_step(0.05, 1, weights, gradient, ([0.0] * 5, [0.0] * 5), highest=1.0)
    assert first == pytest.approx([0.1 * g for g in gradient]) and second == pytest.approx(
        [0.001 * g * g for g in gradient]
    )
    assert lamb_ratio(4.0, 16.0) == 0.5 and lamb_ratio(4.0, 16.0, highest=1.0) == 0.25 and stepped != weights
    with pytest.raises(ValueError, match="one length"):
        lars_step(1.0, [1.0], [], [1.0])


def test_ranks_meet_seldom():
    assert [meeting(step, period=3, synchronous=2) for step in range(6)] == [
        "gradients",
        "gradients",
        "nothing",
        "nothing",
        "weights",
        "nothing",
    ]
    common, velocity = Outer().step([1.0], [0.5], [0.0])
    assert common == pytest.approx([1 - 0.7 * 0.95]) and velocity == [0.5]
    assert Outer(1.0, 0.0, False).step([1.0], [0.5], [0.0])[0] == [0.5]
    assert [Streaming(4, 2, 1).at(step) for step in range(5)] == [
        [],
        [("send", 1)],
        [("receive", 1)],
        [("send", 0)],
        [("receive", 0)],
    ]


def test_layouts_are_advised_best_first():
    layer = Cost(0.01, 0.02, 1_000_000, 1_000_000, 100_000, tensor=Share(1.0, 4, 200_000))
    machine = Machine(4, 1 << 40, Link(1e-5, 1e10))
    found = advise([layer] * 4, machine, batch=16)
    assert found[0].fits and [it.step for it in found[:9]] == pytest.approx(sorted(it.step for it in found[:9]))
    assert {it.zero for it in found} == {0, 1, 2, 3} and {it.pipeline for it in found} == {
        None,
        "gpipe",
        "1f1b",
        "zero_bubble",
        "interleaved",
    }
    assert all(math.prod(it.degrees.values()) == 4 for it in found)
    small = advise(
        [layer] * 4, Machine(4, 30_000_000, Link(1e-5, 1e10), Link(1e-3, 1e8), ranks_per_host=2, at_once=2.0), batch=16
    )
    assert small[0].fits and small[0].memory <= 30_000_000 and not small[-1].fits


def test_the_pages_programs_work():
    text = (Path(__file__).parents[2] / "docs/parallel.md").read_text()
    programs = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(programs) == 7
    names = {}
    for program in programs:
        exec(program, names)
