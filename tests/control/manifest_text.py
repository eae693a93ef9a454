"""Manifests as text, one line of arguments each."""

from __future__ import annotations

OURS = "apiVersion: juneau.loutres.me/v1alpha1\n"


def vpc(name: str, spec: str = "{}") -> str:
    return f"{OURS}kind: Vpc\nmetadata: {{name: {name}}}\nspec: {spec}\n"


def subnet(name: str, vpc: str, cidr: str = "10.80.0.0/24", more: str = "") -> str:
    return f"{OURS}kind: Subnet\nmetadata: {{name: {name}}}\nspec: {{vpc: {vpc}, cidr: {cidr}{more}}}\n"


def pod(name: str, subnet: str = "", address: str = "", spec: str = "{}") -> str:
    notes = [f'juneau.loutres.me/subnet: "{subnet}"'] if subnet else []
    notes += [f'juneau.loutres.me/address: "{address}"'] if address else []
    metadata = f"{{name: {name}, annotations: {{{', '.join(notes)}}}}}"
    return f"apiVersion: v1\nkind: Pod\nmetadata: {metadata}\nspec: {spec}\n"


def service(name: str, spec: str = "{ports: [{port: 80}]}", vpc: str = "default") -> str:
    note = f"annotations: {{juneau.loutres.me/vpc: {vpc}}}"
    return f"apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, {note}}}\nspec: {spec}\n"


def endpoint(name: str, vpc: str) -> str:
    spec = f"{{vpc: {vpc}, service: {{namespace: default, name: web}}}}"
    return f"{OURS}kind: VpcEndpoint\nmetadata: {{name: {name}}}\nspec: {spec}\n"
