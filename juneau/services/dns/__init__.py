"""The resolver of a Subnet: cluster names as the caller's Vpc may see them, and the rest forwarded."""
