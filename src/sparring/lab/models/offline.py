"""Whether the Hugging Face hub can be reached.

If not, the hub's libraries are switched to offline mode. They then use their caches at once, instead of
retrying for half a minute.
"""

import os
import socket
from functools import cache
from urllib.parse import urlparse

from huggingface_hub import constants
from huggingface_hub.utils import logging

PROXIES = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")  # behind a proxy only a request can tell


@cache
def look_for_hub(seconds: float = 3.0) -> bool:
    """Call before the hub is used. Returns whether it answers; True also if that cannot be known."""
    if constants.HF_HUB_OFFLINE:
        return False
    if any(os.environ.get(name) for name in PROXIES):
        return True
    address = urlparse(constants.ENDPOINT)
    port = address.port or (443 if address.scheme == "https" else 80)
    try:
        socket.create_connection((address.hostname or "", port), seconds).close()
    except OSError:
        constants.HF_HUB_OFFLINE = True
        logging.set_verbosity_error()
        return False
    return True
