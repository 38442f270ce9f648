"""What follows from a topology scenario alone: its index, validation, memory ledger, routes. Pure."""
