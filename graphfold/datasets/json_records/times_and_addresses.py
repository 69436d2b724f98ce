"""Times and IP addresses that stand in records as text, and their features."""

from __future__ import annotations

import ipaddress
import math
import re
from datetime import datetime, timezone
from typing import Any

#: A date, with or without a time of day: ISO 8601 as RFC 3339 has it, or with a blank for the T.
_TIME = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d([.,]\d{1,9})?)?(Z|[+-]\d\d:?\d\d)?)?")

#: The bits of an address that are features: all of IPv4, of IPv6 the network.
ADDRESS_BITS = 64

#: Features of an address beside its bits: version, and what RFC 6890 reserves it for.
ADDRESS_FACTS = 5

#: Features of a time beside the seconds: sine and cosine of the hour and of the day of the week.
TIME_FACTS = 4

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def read_time(text: str) -> float | None:
    """Seconds since 1970, of a time without a zone as if it were UTC; None if it is no time."""
    if not _TIME.fullmatch(text):
        return None
    text = text.replace(",", ".").replace("Z", "+00:00")
    head, dot, fraction = text.partition(".")
    if dot:  # Python 3.10 wants six digits
        digits = re.match(r"\d+", fraction)
        assert digits is not None
        text = f"{head}.{digits[0][:6]:0<6}{fraction[digits.end() :]}"
    try:
        time = datetime.fromisoformat(_with_colon(text))
    except ValueError:  # the 31st of June
        return None
    return (time if time.tzinfo else time.replace(tzinfo=timezone.utc)).timestamp()


def _with_colon(text: str) -> str:
    """The text with a colon in its zone, which Python 3.10 wants."""
    return re.sub(r"(:.*[+-]\d\d)(\d\d)$", r"\1:\2", text)


def read_address(text: str) -> Address | None:
    """The address that a text is; None if it is none."""
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def time_features(seconds: float, mean: float, std: float) -> dict[str, Any]:
    """The features of a time: standardised, and where in the day and in the week it lies (UTC)."""
    day = seconds / 86_400 % 1.0
    week = (seconds / 86_400 + 3) % 7 / 7  # the first of January 1970 was a Thursday
    angles = (2 * math.pi * day, 2 * math.pi * week)
    cycle = [f(angle) for angle in angles for f in (math.sin, math.cos)]
    return {"value": min(max((seconds - mean) / std, -10.0), 10.0), "cycle": cycle}


def address_features(address: Address) -> dict[str, Any]:
    """The features of an address: its leading bits, version, and whether it is a special one.

    Addresses of one network share their leading bits.
    """
    size = address.max_prefixlen
    bits = [float(bit) for bit in f"{int(address):0{size}b}"[:ADDRESS_BITS]]
    facts = (
        address.version == 6,
        address.is_private,
        address.is_loopback,
        address.is_multicast,
        address.is_reserved or address.is_link_local or address.is_unspecified,
    )
    return {
        "bits": bits + [0.0] * (ADDRESS_BITS - len(bits)),
        "facts": [float(fact) for fact in facts],
    }
