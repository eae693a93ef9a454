"""Shared vocabulary: pure values and the policy that DNS and BPF programming must judge alike.

Nothing here does I/O or knows a wire format. Addresses are `ipaddress` objects at this level;
the netstack and the BPF mirrors use integers and bytes.
"""
