"""Native code for CPUs: matrix products, and passes of compiled cells."""
