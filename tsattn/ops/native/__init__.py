"""A kernel of its own for CPUs: exact attention whose scores stop at the components that a pair shares."""
