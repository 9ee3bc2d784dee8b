"""The sizes of files that an index does not tell: the server of each file is asked for its length, all at once.

Only headers are read, within a few seconds altogether. A size that does not come in time stays unknown.
"""

import urllib.request
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Final

SECONDS: Final = 5.0
_AT_ONCE: Final = 16


def lengths(addresses: Mapping[str, str]) -> dict[str, int]:
    """The lengths of the files at these addresses, by the names that they were given under."""
    https = {name: address for name, address in addresses.items() if address.startswith("https://")}
    if not https:
        return {}
    pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="sizes")
    asked = {name: pool.submit(_length, address) for name, address in https.items()}
    wait(asked.values(), timeout=SECONDS)
    pool.shutdown(wait=False, cancel_futures=True)
    return {name: one.result() for name, one in asked.items() if one.done() and not one.cancelled() and one.result()}


def _length(address: str) -> int:
    with suppress(OSError, ValueError):
        request = urllib.request.Request(address, method="HEAD")  # noqa: S310 - only https comes here
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:  # noqa: S310
            return int(answer.headers.get("Content-Length") or 0)
    return 0
