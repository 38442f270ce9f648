"""What a collective takes on a topology: phases of messages between its members, each over a path of directed links.

Members stand in the communicator's immutable order, which is the logical ring. Messages of a phase start together, so
a phase takes as long as the slowest of: the longest path; on each link, the sum of all messages that cross it; on each
NIC or switch, the sum of its own latency and transfer time for all that pass it. Phases follow one another.

    all_reduce_ring   2 (N - 1) phases, in each of which every member sends ceil(bytes / N), at least 1, to the next
    all_to_all_v      N - 1 phases; in phase k member i sends its bytes for member i + k + 1 (mod N), if there are any

A link or a resource with several lanes is counted as if it had one: the bound is on the side of more time.
Source: the contract's revision 9 cost model; a ring of N moves 2 (N - 1) / N of the bytes over each edge.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from isim.plan.paths import Paths

Matrix = Sequence[Sequence[int]]
"""Bytes from member to member: `matrix[source][target]`, square."""

SIGNATURE_KIND = "all_to_all_v_matrix_v1"


class Message(msgspec.Struct, frozen=True):
    """Bytes from one memory domain to another."""

    source: str
    target: str
    size_bytes: int


class CollectiveCost(msgspec.Struct, frozen=True):
    """The duration, and all links that any phase uses, in the order of first use."""

    duration_ns: int
    links: tuple[str, ...]


def all_reduce_ring(domains: Sequence[str], size_bytes: int, paths: Paths) -> CollectiveCost:
    """An all-reduce of `size_bytes` at each member, whose buffers lie in `domains`."""
    members = len(domains)
    if members < 2:
        return CollectiveCost(0, ())
    share = max(1, -(-size_bytes // members))
    phase = [Message(domains[rank], domains[(rank + 1) % members], share) for rank in range(members)]
    cost = _phase(phase, paths)
    return CollectiveCost(2 * (members - 1) * cost.duration_ns, cost.links)


def all_to_all_v(domains: Sequence[str], matrix: Matrix, paths: Paths) -> CollectiveCost:
    """A pairwise exchange of `matrix[source][target]` bytes; what stays with its member moves nowhere."""
    members = len(domains)
    duration_ns = 0
    links: dict[str, None] = {}
    for offset in range(1, members):
        phase = []
        for rank in range(members):
            peer = (rank + offset) % members
            if matrix[rank][peer]:
                phase.append(Message(domains[rank], domains[peer], matrix[rank][peer]))
        cost = _phase(phase, paths)
        duration_ns += cost.duration_ns
        links.update(dict.fromkeys(cost.links))
    return CollectiveCost(duration_ns, tuple(links))


def transposed(matrix: Matrix) -> tuple[tuple[int, ...], ...]:
    """The matrix of the way back: a gather returns what a dispatch sent."""
    return tuple(zip(*matrix, strict=True))


def traffic_signature(matrix: Matrix) -> str:
    """A name for the shape of the traffic, equal for matrices that differ by a factor only.

    All cells are divided by the greatest common divisor of those that are not 0.
    """
    divisor = math.gcd(*(cell for row in matrix for cell in row)) or 1
    rows = [[cell // divisor for cell in row] for row in matrix]
    return f"{SIGNATURE_KIND}:{msgspec.json.encode(rows).decode()}"


def _phase(messages: Sequence[Message], paths: Paths) -> CollectiveCost:
    longest_ns = 0
    links: dict[str, int] = {}
    resources: dict[str, int] = {}
    for message in messages:
        size_bytes, path_ns = message.size_bytes, 0
        for link in paths.links(message.source, message.target, size_bytes):
            hop_ns = paths.hop_ns(link, size_bytes)
            path_ns += hop_ns
            links[link.id] = links.get(link.id, 0) + hop_ns
            for resource in paths.resources(link):
                resources[resource.id] = resources.get(resource.id, 0) + paths.resource_ns(resource, size_bytes)
        longest_ns = max(longest_ns, path_ns)
    return CollectiveCost(max((longest_ns, *links.values(), *resources.values())), tuple(links))
