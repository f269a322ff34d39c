"""How long things take in the life of a group: the product's own settings, and what the world does.

Settings of the product are its defaults, so that a month has the rhythm of a real one.
"""

from __future__ import annotations

from headrace.coordinator.context import GroupOptions
from headrace.model.groups import LOWERED_RETRY_MS, AutoRestart, KeepSetting

MINUTE_S, HOUR_S, DAY_S = 60.0, 3600.0, 86_400.0

HEARTBEAT_TIMEOUT_S = 60.0
GRACE_S = AutoRestart().grace_ms / 1000
MAX_RETRIES = AutoRestart().max_retries
CHECK_S = KeepSetting().check_interval_ms / 1000
KEEP_ATTEMPTS = KeepSetting().max_attempts
LOWERED_S = LOWERED_RETRY_MS / 1000
COORDINATORS = GroupOptions(coordinators=("http://c1", "http://c2")).coordinators

TTL_S = 3.0
TRUST_S = TTL_S * 5 / 6
TICK_S = 20.0  # so late at most does a leader look after something became due
IDLE_S = 3 * HOUR_S  # at most between two looks when nothing is due

# What a start takes when all is well, and when it is not.
CALL_S = (0.2, 20.0)
HUNG_CALL_S = (30.0, 8 * MINUTE_S)
BOOT_S = (5.0, 90.0)
SLOW_BOOT_S = (GRACE_S * 0.9, GRACE_S * 1.8)  # below twice the grace period: one beside another
MUTE_S = 10 * DAY_S  # a process that never says a word
ASK_AGAIN_S = (3.0, 15.0)  # between two tries of a worker to be registered
RESTART_S = (5.0, 4 * MINUTE_S)  # until a killed coordinator is there again
HEALS_S = (5.0, 60.0)  # until a container that heals itself starts its process again

# From the last thing that went wrong to the worker that is registered again.
BACK_MAX_S = HEARTBEAT_TIMEOUT_S + GRACE_S + CALL_S[1] * 4 + BOOT_S[1] + ASK_AGAIN_S[1] + 6 * TICK_S
# The same for threads that have to be asked for anew.
KEPT_MAX_S = CHECK_S * KEEP_ATTEMPTS + BACK_MAX_S
LOWERED_MAX_S = LOWERED_S + KEPT_MAX_S
