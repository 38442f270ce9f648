"""Topologies known by name: six families, rings, small LANs, five computers. All of them are data for one builder."""
