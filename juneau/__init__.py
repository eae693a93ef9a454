"""Userspace network stack and VPC service plane."""
