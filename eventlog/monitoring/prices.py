"""List prices of object storage, by which requests and bytes are converted into dollars. Pure."""

from __future__ import annotations

from dataclasses import dataclass

GIB = 2**30
DAYS_A_MONTH = 365 / 12


@dataclass(frozen=True, slots=True)
class Prices:
    """What a store bills, in US dollars, without taxes and transfer out of its region.

    Attributes:
        source: whose prices they are, and where.
        date: the year in which they were read.
        write: of a request PUT, COPY, POST or LIST.
        read: of a request GET, and all others; DELETE is free.
        stored: of a GiB that is stored for a month.
    """

    source: str
    date: str
    write: float
    read: float
    stored: float

    def requests(self, writes: float, reads: float) -> float:
        """Return the price of requests in US dollars."""
        return self.write * writes + self.read * reads

    def storage(self, size: float, days: float) -> float:
        """Return the price of storing bytes for a number of days, in US dollars."""
        return self.stored * size / GIB * days / DAYS_A_MONTH


# https://aws.amazon.com/s3/pricing/; the price of storage is that of the first 50 TB.
S3_STANDARD = Prices("S3 Standard's list price in us-east-1", "2025", 5e-6, 0.4e-6, 0.023)
