"""The scheduler of vLLM's V1 engine, as a state table that knows no time.

There is no prefill phase and no decode phase: each request has `computed` tokens catching up with its `known`
tokens (prompt, generated, and in flight). But nearly always nearly all running requests have exactly one token
due. Those are the *decoders*; they advance together, one tick a step, and no step visits them one by one:

    sequence.py   one request; what it holds while nobody advances it for it
    decoders.py   the requests with one token due: count, context, who opens a block at which tick, who ends when
    pool.py       KV blocks: the free queue, the prefix cache
    keys.py       what makes two blocks equal
    waiting.py    the waiting queue, first come first served or by priority
    rules.py      where the versions differ, as a table
    walk.py       the running pass word by word: who gets tokens, who is preempted when blocks are short
    admit.py      the waiting pass
    scheduler.py  the table itself: add, abort, schedule, update; horizon and advance for runs of equal steps
    flight.py     a step under way
    plan.py       the values it answers with
    refusal.py    whom the engine refuses at the door

Where a model's layers do not all keep alike, blocks are told by tables, one for each KV group of a request:

    group_rules.py      what a group keeps, as arithmetic
    group_pool.py       tables, the free queue in numbers, look-ups over several groups
    group_scheduler.py  the scheduler with these tables in the place of counts

`walk.py` visits every running request; it is taken only where blocks or budget run short, since only then does
the order among the running matter. Source of the rules: schedules recorded from vLLM 0.21.0 and 0.33.0.
"""
