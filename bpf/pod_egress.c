// SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause)
/* TC ingress of the host side of each Pod's veth: what a Pod sends.
 *
 * Nothing leaves here for the host's own stack: a frame is answered, handed to the TAP, handed to another Pod of the same
 * VPC, or dropped and counted. Compiled by bcc with PIN_PATH and FLOW_ENTRIES defined. At the end: how the TAP's
 * queues are shared out.
 */
#include <uapi/linux/bpf.h>
#include <uapi/linux/if_ether.h>
#include <uapi/linux/in.h>
#include <uapi/linux/ip.h>
#include <uapi/linux/pkt_cls.h>

#include "juneau_abi.h"

#define BPF_LICENSE Dual BSD/GPL

#define IP_FRAGMENT_BITS 0x3fff /* MF and the offset */
#define ARP_HARDWARE_ETHERNET 1
#define ARP_REQUEST 1
#define ARP_REPLY 2

BPF_TABLE_PINNED("array", __u32, struct plane_config, plane_config_map, 1, PIN_PATH "/plane_config_map");
BPF_TABLE_PINNED("percpu_array", __u32, __u64, counter_map, PLANE_COUNTERS, PIN_PATH "/counter_map");
BPF_TABLE_PINNED("hash", __u32, struct nic_value, nic_map, 32768, PIN_PATH "/nic_map");
BPF_TABLE_PINNED("hash", __u32, struct subnet_value, subnet_map, 16384, PIN_PATH "/subnet_map");
BPF_TABLE_PINNED("hash", struct arp_key, struct arp_value, arp_table, 131072, PIN_PATH "/arp_table",
		 BPF_F_NO_PREALLOC);
BPF_TABLE_PINNED("hash", struct fdb_key, struct fdb_value, fdb_map, 131072, PIN_PATH "/fdb_map", BPF_F_NO_PREALLOC);
BPF_TABLE_PINNED("lpm_trie", struct route_key, struct route_value, route_map, 32768, PIN_PATH "/route_map",
		 BPF_F_NO_PREALLOC);
BPF_TABLE_PINNED("hash", struct virtual_service_key, struct virtual_service_value, virtual_service_map, 131072,
		 PIN_PATH "/virtual_service_map", BPF_F_NO_PREALLOC);
BPF_TABLE_PINNED("lru_hash", struct flow_key, struct flow_value, virtual_service_flow_map, FLOW_ENTRIES,
		 PIN_PATH "/virtual_service_flow_map");

struct ether_pair {
	__u8 dst[JUNEAU_MAC_LEN];
	__u8 src[JUNEAU_MAC_LEN];
} __attribute__((packed));

struct arp_frame {
	struct ether_pair ether;
	__be16 ethertype;
	__be16 hardware, protocol;
	__u8 hardware_len, protocol_len;
	__be16 operation;
	__u8 sender_mac[JUNEAU_MAC_LEN];
	__be32 sender_ip;
	__u8 target_mac[JUNEAU_MAC_LEN];
	__be32 target_ip;
} __attribute__((packed));

static __always_inline void count(__u32 which)
{
	__u64 *n = counter_map.lookup(&which);

	if (n)
		*n += 1;
}

static __always_inline int drop(__u32 reason)
{
	count(reason);
	return TC_ACT_SHOT;
}

static __always_inline int redirect(__u32 ifindex, __u32 counter)
{
	count(counter);
	return bpf_redirect(ifindex, 0);
}

static __always_inline int same_mac(const __u8 *a, const __u8 *b)
{
	return a[0] == b[0] && a[1] == b[1] && a[2] == b[2] && a[3] == b[3] && a[4] == b[4] && a[5] == b[5];
}

static __always_inline void set_ether(struct __sk_buff *skb, const __u8 *dst, const __u8 *src)
{
	struct ether_pair ether;

	__builtin_memcpy(ether.dst, dst, JUNEAU_MAC_LEN);
	__builtin_memcpy(ether.src, src, JUNEAU_MAC_LEN);
	bpf_skb_store_bytes(skb, 0, &ether, sizeof(ether), 0);
}

static __always_inline int from_arp(struct __sk_buff *skb, struct nic_value *nic)
{
	struct arp_frame arp;
	struct arp_key key = {};
	struct arp_value *answer;

	if (bpf_skb_load_bytes(skb, 0, &arp, sizeof(arp)))
		return drop(DROP_MALFORMED);
	if (arp.hardware != bpf_htons(ARP_HARDWARE_ETHERNET) || arp.protocol != bpf_htons(ETH_P_IP) ||
	    arp.hardware_len != JUNEAU_MAC_LEN || arp.protocol_len != 4)
		return drop(DROP_MALFORMED);
	/* Sender 0.0.0.0 is a probe (RFC 5227 section 1.1). */
	if (!same_mac(arp.sender_mac, nic->mac) || (arp.sender_ip != nic->ip && arp.sender_ip))
		return drop(DROP_SPOOFED_ARP);
	if (arp.operation != bpf_htons(ARP_REQUEST))
		return drop(DROP_ARP_NOT_REQUEST);
	if (arp.target_ip == nic->ip)
		return drop(DROP_ARP_OWN_ADDRESS);
	key.subnet_id = nic->subnet_id;
	key.ip = arp.target_ip;
	answer = arp_table.lookup(&key);
	if (!answer)
		return drop(DROP_ARP_UNKNOWN);

	arp.operation = bpf_htons(ARP_REPLY);
	arp.target_ip = arp.sender_ip;
	arp.sender_ip = key.ip;
	__builtin_memcpy(arp.target_mac, nic->mac, JUNEAU_MAC_LEN);
	__builtin_memcpy(arp.sender_mac, answer->mac, JUNEAU_MAC_LEN);
	__builtin_memcpy(arp.ether.dst, nic->mac, JUNEAU_MAC_LEN);
	__builtin_memcpy(arp.ether.src, answer->mac, JUNEAU_MAC_LEN);
	bpf_skb_store_bytes(skb, 0, &arp, sizeof(arp), 0);
	return redirect(skb->ifindex, PASS_ARP_REPLY);
}

static __always_inline void note_flow(struct __sk_buff *skb, struct flow_key *key, struct nic_value *nic,
				      struct virtual_service_value *service)
{
	struct flow_value *flow = virtual_service_flow_map.lookup(key);
	__u64 packets = skb->gso_segs ? skb->gso_segs : 1;
	__u64 bytes = skb->len - ETH_HLEN;
	__u64 now = bpf_ktime_get_ns();
	struct flow_value fresh = {};

	/* A record of an earlier Pod with this address, or of an earlier service, starts over. */
	if (flow && flow->ifindex == skb->ifindex && flow->service_id == service->service_id) {
		__sync_fetch_and_add(&flow->packets, packets);
		__sync_fetch_and_add(&flow->bytes, bytes);
		flow->last_seen_ns = now;
		return;
	}
	fresh.vpc_id = nic->vpc_id;
	fresh.service_id = service->service_id;
	fresh.ifindex = skb->ifindex;
	__builtin_memcpy(fresh.pod_mac, nic->mac, JUNEAU_MAC_LEN);
	__builtin_memcpy(fresh.service_mac, service->service_mac, JUNEAU_MAC_LEN);
	fresh.packets = packets;
	fresh.bytes = bytes;
	fresh.first_seen_ns = now;
	fresh.last_seen_ns = now;
	virtual_service_flow_map.update(key, &fresh);
}

static __always_inline int to_tap(struct __sk_buff *skb, __u32 subnet_id)
{
	__u32 zero = 0;
	struct plane_config *config = plane_config_map.lookup(&zero);
	struct stamp stamp = {
		.dst_tag = bpf_htons(JUNEAU_STAMP_TAG),
		.subnet_id = bpf_htonl(subnet_id),
		.src_tag = bpf_htons(JUNEAU_STAMP_TAG),
		.ifindex = bpf_htonl(skb->ifindex),
	};

	if (!config || !config->tap_ifindex)
		return drop(DROP_NO_TAP);
	bpf_skb_store_bytes(skb, 0, &stamp, sizeof(stamp), 0);
	return redirect(config->tap_ifindex, PASS_TO_SERVICE);
}

static __always_inline int switched(struct __sk_buff *skb, struct nic_value *nic, const __u8 *mac)
{
	struct fdb_key key = {};
	struct fdb_value *port;

	key.subnet_id = nic->subnet_id;
	__builtin_memcpy(key.mac, mac, JUNEAU_MAC_LEN);
	port = fdb_map.lookup(&key);
	if (!port || port->ifindex == skb->ifindex)
		return drop(DROP_UNKNOWN_MAC);
	return redirect(port->ifindex, PASS_SWITCHED);
}

static __always_inline int routed(struct __sk_buff *skb, struct nic_value *nic, struct iphdr *ip)
{
	struct route_key to = {.prefix_len = 64, .table_id = nic->vpc_id, .dst = ip->daddr};
	struct arp_key key = {.ip = ip->daddr};
	struct subnet_value *subnet;
	struct route_value *route;
	struct arp_value *pod;
	__u32 check;

	route = route_map.lookup(&to);
	if (!route)
		return drop(DROP_NO_ROUTE);
	key.subnet_id = route->subnet_id;
	subnet = subnet_map.lookup(&key.subnet_id);
	if (!subnet)
		return drop(DROP_UNKNOWN_SUBNET);
	if (subnet->vpc_id != nic->vpc_id)
		return drop(DROP_CROSS_VPC);
	if (subnet->gateway_ip == ip->daddr)
		return drop(DROP_TO_GATEWAY);
	pod = arp_table.lookup(&key);
	if (!pod)
		return drop(DROP_NO_NEIGHBOUR);
	if (!pod->ifindex)
		return drop(DROP_FOREIGN_VIP);
	if (ip->ttl <= 1)
		return drop(DROP_TTL_EXCEEDED);
	/* RFC 1141: one less in the TTL is 0x0100 more in the checksum, end-around carry included. */
	check = ip->check + bpf_htons(0x0100);
	ip->check = check + (check >= 0xffff);
	ip->ttl -= 1;
	set_ether(skb, pod->mac, subnet->gateway_mac);
	return redirect(pod->ifindex, PASS_ROUTED);
}

static __always_inline int from_ipv4(struct __sk_buff *skb, struct nic_value *nic)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct virtual_service_value *service = 0;
	struct virtual_service_key vip = {};
	struct subnet_value *subnet;
	struct flow_key flow = {};
	struct ethhdr *ether;
	struct iphdr *ip;
	__be16 ports[2];
	__u32 total, header;

	if (data + ETH_HLEN + sizeof(*ip) > end) {
		if (bpf_skb_pull_data(skb, ETH_HLEN + sizeof(*ip)))
			return drop(DROP_MALFORMED);
		data = (void *)(long)skb->data;
		end = (void *)(long)skb->data_end;
		if (data + ETH_HLEN + sizeof(*ip) > end)
			return drop(DROP_MALFORMED);
	}
	ether = data;
	ip = data + ETH_HLEN;
	total = bpf_ntohs(ip->tot_len);
	header = ip->ihl * 4;
	if (ip->version != 4 || header < sizeof(*ip) || total < header || skb->len < ETH_HLEN + total)
		return drop(DROP_MALFORMED);
	if (ip->saddr != nic->ip)
		return drop(DROP_SPOOFED_IP);
	if (ether->h_dest[0] & 1)
		return drop(DROP_BROADCAST);

	flow.subnet_id = nic->subnet_id;
	flow.src_ip = ip->saddr;
	flow.dst_ip = ip->daddr;
	flow.proto = ip->protocol;
	vip.subnet_id = nic->subnet_id;
	vip.dst_ip = ip->daddr;
	if ((ip->protocol == IPPROTO_TCP || ip->protocol == IPPROTO_UDP) &&
	    !(ip->frag_off & bpf_htons(IP_FRAGMENT_BITS)) && total >= header + sizeof(ports) &&
	    !bpf_skb_load_bytes(skb, ETH_HLEN + header, ports, sizeof(ports))) {
		flow.src_port = ports[0];
		flow.dst_port = ports[1];
		vip.dst_port = ports[1];
		vip.proto = ip->protocol;
		service = virtual_service_map.lookup(&vip);
	}
	if (!service) {
		vip.dst_port = 0;
		vip.proto = 0;
		service = virtual_service_map.lookup(&vip);
	}
	if (service) {
		note_flow(skb, &flow, nic, service);
		return to_tap(skb, nic->subnet_id);
	}

	subnet = subnet_map.lookup(&flow.subnet_id);
	if (!subnet)
		return drop(DROP_UNKNOWN_SUBNET);
	if (same_mac(ether->h_dest, subnet->gateway_mac))
		return routed(skb, nic, ip);
	return switched(skb, nic, ether->h_dest);
}

int pod_egress(struct __sk_buff *skb)
{
	__u32 ifindex = skb->ifindex;
	struct nic_value *nic = nic_map.lookup(&ifindex);
	struct ether_pair ether;

	if (!nic)
		return drop(DROP_UNKNOWN_NIC);
	if (bpf_skb_load_bytes(skb, 0, &ether, sizeof(ether)))
		return drop(DROP_MALFORMED);
	if (!same_mac(ether.src, nic->mac))
		return drop(DROP_SPOOFED_MAC);
	if (skb->vlan_present)
		return drop(DROP_VLAN);
	switch (bpf_ntohs(skb->protocol)) {
	case ETH_P_IP:
		return from_ipv4(skb, nic);
	case ETH_P_ARP:
		return from_arp(skb, nic);
	case ETH_P_IPV6:
		return drop(DROP_IPV6);
	case ETH_P_8021Q:
	case ETH_P_8021AD:
		return drop(DROP_VLAN);
	default:
		return drop(DROP_NOT_IP);
	}
}

/* Which queue of the TAP (TUNSETSTEERINGEBPF; the kernel takes it modulo their number): a Pod always has the same one. */
int tap_queue(struct __sk_buff *skb)
{
	struct stamp stamp;

	if (bpf_skb_load_bytes(skb, 0, &stamp, sizeof(stamp)))
		return 0;
	return bpf_ntohl(stamp.ifindex) & 0xffff;
}
