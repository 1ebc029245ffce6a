"""Whether the Hugging Face hub answers. Where it does not, its libraries are told so: they look into their caches at once, instead of
trying again and again for half a minute."""

from __future__ import annotations

import os
import socket
from functools import cache
from urllib.parse import urlparse

from huggingface_hub import constants
from huggingface_hub.utils import logging

PROXIES = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")  # behind one, only a request can tell


@cache
def look_for_hub(seconds: float = 3.0) -> bool:
    """Before anything is asked of the hub; True where it answers or one cannot tell."""
    if constants.HF_HUB_OFFLINE:
        return False
    if any(os.environ.get(name) for name in PROXIES):
        return True
    address = urlparse(constants.ENDPOINT)
    try:
        socket.create_connection(
            (address.hostname or "", address.port or (443 if address.scheme == "https" else 80)), seconds
        ).close()
    except OSError:
        constants.HF_HUB_OFFLINE = True
        logging.set_verbosity_error()
        return False
    return True
