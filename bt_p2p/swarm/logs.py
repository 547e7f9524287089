"""What becomes of hivemind's log messages. Call before the first process is forked."""

from __future__ import annotations

import logging

from hivemind.utils.logging import use_hivemind_log_handler


def route_hivemind_logs() -> None:
    """Send them where the program sends its own, and only when it is debugging.

    hivemind logs each failed round with a traceback; every such failure also reaches us as an
    exception, and is told once, in our words.
    """
    use_hivemind_log_handler("nowhere")  # no handler of its own, and pass messages on
    is_debugging = logging.getLogger().isEnabledFor(logging.DEBUG)
    logging.getLogger("hivemind").setLevel(logging.DEBUG if is_debugging else logging.CRITICAL)
