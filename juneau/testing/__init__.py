"""For anyone's tests of networked code: a network in virtual time, no root, no kernel sockets.

clock        virtual time and a scheduler
wire         a seeded wire that loses, delays, repeats, reorders
network      asyncio programs on hosts with stacks, unchanged (docs/network-in-a-process.md)
sim          one stack against virtual time, or several joined by the wire
packets      build and take apart raw packets, independent of the stack
match        composable packet matchers; oracle: scapy as a second opinion
strategies   Hypothesis: packets, damage, conversations; machine: two stacks under random events
packetdrill  scripts in packetdrill's language, in virtual time

Only the standard library and Hypothesis are needed; scapy only by `oracle`.
"""
