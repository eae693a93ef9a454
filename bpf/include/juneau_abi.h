// SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause)
/* What BPF and user space both read and write.
 *
 * Mirrored in juneau/packetplane/bpf/abi.py: change both together; a test compares sizes, offsets and the enum.
 * Network-order fields are __be16/__be32, everything else is host order. Every byte of padding has a name and is zero:
 * hashes cover it.
 */
#ifndef JUNEAU_ABI_H
#define JUNEAU_ABI_H

#include <linux/types.h>

#define JUNEAU_MAC_LEN 6

/* First two bytes of both Ethernet addresses of a frame on the TAP; locally administered, unicast. */
#define JUNEAU_STAMP_TAG 0x024a

/* The stamp: 02:4a:<subnet_id> as destination, 02:4a:<ifindex of the Pod's host veth> as source. Ethernet addresses
 * survive segmentation and fragmentation, which the IP id does not.
 */
struct stamp {
	__be16 dst_tag;
	__be32 subnet_id;
	__be16 src_tag;
	__be32 ifindex;
} __attribute__((packed));

/* plane_config_map: one element. tap_ifindex 0: nobody serves, virtual services drop. */
struct plane_config {
	__u32 tap_ifindex;
	__u32 pad;
};

/* nic_map, by ifindex of the host side of a Pod's veth: who may send there. */
struct nic_value {
	__u32 vpc_id;
	__u32 subnet_id;
	__be32 ip;
	__u8 mac[JUNEAU_MAC_LEN];
	__u8 pad[2];
};

/* subnet_map, by subnet_id. */
struct subnet_value {
	__u32 vpc_id;
	__be32 gateway_ip;
	__u8 gateway_mac[JUNEAU_MAC_LEN];
	__u8 pad[2];
};

/* arp_table: every address of a Subnet that somebody has. ifindex 0: the gateway or a VIP, otherwise a Pod's. */
struct arp_key {
	__u32 subnet_id;
	__be32 ip;
};

struct arp_value {
	__u32 ifindex;
	__u8 mac[JUNEAU_MAC_LEN];
	__u8 pad[2];
};

struct fdb_key {
	__u32 subnet_id;
	__u8 mac[JUNEAU_MAC_LEN];
	__u8 pad[2];
};

struct fdb_value {
	__u32 ifindex;
};

/* route_map, LPM: prefix_len counts the 32 bits of table_id too. A table per VPC: table_id is the vpc_id. */
struct route_key {
	__u32 prefix_len;
	__u32 table_id;
	__be32 dst;
};

struct route_value {
	__u32 subnet_id;
};

/* virtual_service_map. dst_port 0 and proto 0 stand for the VIP itself: ICMP, closed ports and fragments. */
struct virtual_service_key {
	__u32 subnet_id;
	__be32 dst_ip;
	__be16 dst_port;
	__u8 proto;
	__u8 pad;
};

struct virtual_service_value {
	__u32 service_id;
	__u8 service_mac[JUNEAU_MAC_LEN];
	__u8 pad[2];
};

/* virtual_service_flow_map, LRU: for people to look at; nothing depends on it. Ports are 0 for fragments and ICMP. */
struct flow_key {
	__u32 subnet_id;
	__be32 src_ip;
	__be32 dst_ip;
	__be16 src_port;
	__be16 dst_port;
	__u8 proto;
	__u8 pad[3];
};

struct flow_value {
	__u32 vpc_id;
	__u32 service_id;
	__u32 ifindex;
	__u8 pod_mac[JUNEAU_MAC_LEN];
	__u8 service_mac[JUNEAU_MAC_LEN];
	__u64 packets;
	__u64 bytes; /* IPv4 bytes; a superframe counts its segments' payload once */
	__u64 first_seen_ns; /* CLOCK_MONOTONIC */
	__u64 last_seen_ns;
};

/* counter_map, per CPU. Numbers are exported: append, never renumber. */
enum plane_counter {
	DROP_UNKNOWN_NIC = 0,
	DROP_UNKNOWN_SUBNET = 1,
	DROP_MALFORMED = 2,
	DROP_VLAN = 3,
	DROP_IPV6 = 4,
	DROP_NOT_IP = 5,
	DROP_SPOOFED_MAC = 6,
	DROP_SPOOFED_IP = 7,
	DROP_SPOOFED_ARP = 8,
	DROP_ARP_NOT_REQUEST = 9,
	DROP_ARP_OWN_ADDRESS = 10, /* a Pod's probe or announcement of its own address */
	DROP_ARP_UNKNOWN = 11,
	DROP_BROADCAST = 12, /* and multicast: nothing floods */
	DROP_TTL_EXCEEDED = 13,
	DROP_NO_ROUTE = 14,
	DROP_TO_GATEWAY = 15,
	DROP_FOREIGN_VIP = 16, /* a VIP is reachable from its own Subnet only */
	DROP_NO_NEIGHBOUR = 17,
	DROP_CROSS_VPC = 18,
	DROP_UNKNOWN_MAC = 19,
	DROP_NO_TAP = 20,
	PASS_ARP_REPLY = 21,
	PASS_TO_SERVICE = 22,
	PASS_ROUTED = 23,
	PASS_SWITCHED = 24,
	PLANE_COUNTERS = 32, /* size of the array: room to append without a new pin */
};

#endif
