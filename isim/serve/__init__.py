"""Processes of the serving world: arrivals, router, engine. They wait, ask, apply and emit; policy decides."""
