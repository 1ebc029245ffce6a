"""Run by all_ranks.py: `Collectives` over all ranks and over a subgroup."""

import torch
import torch.distributed as dist

from sparring.heads.parallel.collectives import Collectives


def check(collectives: Collectives, first: int) -> None:
    """``first``: the global rank of the group's rank 0."""
    rank, size = collectives.rank, collectives.size
    ranks = list(range(size))
    total = sum(ranks)
    assert collectives.sum(torch.tensor([rank, 1])).tolist() == [total, size]
    assert collectives.max(torch.tensor(rank)).item() == size - 1
    assert collectives.gather(torch.tensor([rank])).tolist() == [[i] for i in ranks]
    sizes = collectives.gather_sizes(torch.zeros(rank, 2))
    assert sizes == ranks
    rows = torch.full((rank, 2), float(rank))
    gathered = collectives.gather_rows(rows, sizes)
    assert gathered[:, 0].tolist() == [i for i in ranks for _ in range(i)]
    assert torch.equal(collectives.own_rows(gathered, sizes), rows)
    assert torch.equal(collectives.scatter_sum(gathered.clone(), sizes), size * rows)
    assert collectives.sum_numbers([rank, 0.5]) == [total, size / 2]
    parameters = [torch.full((2,), float(dist.get_rank())), torch.tensor(float(dist.get_rank()))]
    collectives.broadcast(parameters)
    assert [parameter.mean().item() for parameter in parameters] == [first, first]
    assert collectives.broadcast_object({"rank": dist.get_rank()}) == {"rank": first}
    assert collectives.gather_objects(str(rank)) == [str(i) for i in ranks]
    collectives.barrier()


def check_all() -> None:
    check(Collectives(), 0)
    check(Collectives(local=True), dist.get_rank())
    last_two = dist.new_group([2, 3])
    if dist.get_rank() >= 2:
        check(Collectives(last_two), 2)
    dist.barrier()
