#!/usr/bin/env bash
# Run by `make demo` while the lab of this folder is up: real curl and dig in both Pods, each answer checked.
set -euo pipefail

checks=0

fail() {
	echo "demo: FAILED: $1" >&2
	echo "demo: what came instead: ${2:-nothing}" >&2
	exit 1
}

in_pod() { juneau lab exec "$@"; }

# expect WHAT PATTERN POD CMD…: the command's output must match the pattern, and is shown
expect() {
	local what=$1 pattern=$2 pod=$3 output
	shift 3
	output=$(in_pod "$pod" -- "$@" 2>&1) || fail "$what: exit status $?" "$output"
	grep -qE -- "$pattern" <<<"$output" || fail "$what: no /$pattern/" "$output"
	printf '%-5s $ %s\n      %s\n' "$pod" "$*" "$(grep -m1 -E -- "$pattern" <<<"$output")"
	checks=$((checks + 1))
}

for pod in blue green; do
	other=$([ "$pod" = blue ] && echo green || echo blue)
	expect "address of $pod" '10\.80\.0\.10/' "$pod" ip -brief -4 address show eth0
	expect "the handler knows $pod" "\\b$pod\\b" "$pod" curl -sS --max-time 5 http://10.80.0.3:8080/
	expect "$pod resolves its own Service" '^10\.(9[6-9]|1[01][0-9])\.' "$pod" \
		dig +short +time=2 +tries=2 @10.80.0.2 "web-$pod.default.svc.cluster.local"
	expect "$pod does not see $other's Service" 'status: NXDOMAIN' "$pod" \
		dig +noall +comments +time=2 +tries=2 @10.80.0.2 "web-$other.default.svc.cluster.local"
	expect "$pod resolves over TCP" 'status: NOERROR' "$pod" \
		dig +tcp +noall +comments +time=2 +tries=2 @10.80.0.2 "web-$pod.default.svc.cluster.local"
done

echo "demo: $checks checks passed: two VPCs, the same addresses, one handler, the right tenant each time"
