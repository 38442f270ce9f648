"""Time and order: clock, ranks, actors, alarms, mailboxes, arbiters. The only room that imports SimPy."""

from isim.kernel.actor import Actor, Body
from isim.kernel.agenda import Key
from isim.kernel.alarm import Alarm
from isim.kernel.arbiter import Arbiter, Lease
from isim.kernel.clock import SAFE_MAX_NS, Rank
from isim.kernel.errors import BudgetExceeded, DeadlockError
from isim.kernel.kernel import DEFAULT_MAX_EVENTS, Kernel
from isim.kernel.mailbox import Mailbox

__all__ = [
    "DEFAULT_MAX_EVENTS",
    "SAFE_MAX_NS",
    "Actor",
    "Alarm",
    "Arbiter",
    "Body",
    "BudgetExceeded",
    "DeadlockError",
    "Kernel",
    "Key",
    "Lease",
    "Mailbox",
    "Rank",
]
