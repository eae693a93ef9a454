"""TCP (RFC 9293 and its companions), sans-IO.

`layer` is the whole of it for one stack; `conn` one connection, cut into `snd` and `rcv`; `steps` judges
arriving segments; `listener` and `timewait` are a connection's life before and after.
"""

from juneau.netstack.tcp.conn import TcpConnection
from juneau.netstack.tcp.info import TcpInfo
from juneau.netstack.tcp.layer import TcpLayer
from juneau.netstack.tcp.listener import TcpListener
from juneau.netstack.tcp.options import TcpOptions
from juneau.netstack.tcp.states import State

__all__ = ["State", "TcpConnection", "TcpInfo", "TcpLayer", "TcpListener", "TcpOptions"]
