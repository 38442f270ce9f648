"""Processes that execute frozen plans on a topology, and the closed form that equals them."""
