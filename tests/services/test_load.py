from __future__ import annotations

from pathlib import Path

import pytest

from juneau.services import LoadError, VirtualService, load_service, load_services
from juneau.services.dns.service import DnsService

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def source(tmp_path):
    def write(text: str, name: str = "mine.py") -> str:
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return write


def test_installed_services_are_found():
    (service,) = load_services(settings={"dns": {"domain": "corp.internal"}})
    assert isinstance(service, DnsService)
    assert service.settings.domain == "corp.internal"


def test_the_example_is_a_class_and_a_function():
    hello = load_service(f"{EXAMPLES}/hello.py:Hello")
    assert (hello.name, hello.tcp_ports, hello.offset) == ("hello", (8080,), 3)
    assert hello.service_id >= 1000
    handle = load_service(f"{EXAMPLES}/hello.py:handle", tcp_ports=(80, 81), offset=9)
    assert (handle.name, handle.tcp_ports, handle.udp_ports, handle.offset) == ("hello", (80, 81), (), 9)


def test_a_file_may_import_its_neighbour_and_hold_an_instance(source):
    source("PORT = 1234", "neighbour_of_mine.py")
    path = source(
        "import neighbour_of_mine as n\nfrom juneau.services import FunctionService\n"
        "service = FunctionService(print, name='mine', udp_ports=(n.PORT,))"
    )
    service = load_service(f"{path}:service")
    assert (service.name, service.udp_ports) == ("mine", (1234,))
    assert load_service(f"{path}:service") is service, "a file is run once"


@pytest.mark.parametrize(
    ("text", "name", "ports", "message"),
    [
        ("def handle(): ...", "", {}, "no NAME in it (write FILE_OR_MODULE:NAME"),
        ("def handle(): ...", "hande", {}, "no 'hande' in .*mine.py (did you mean handle?)"),
        ("def one(): ...\nclass Two: ...", "x", {}, "(it has: one, Two)"),
        ("handle = 3", "handle", {}, "int is neither a handler nor a VirtualService"),
        ("async def handle(r, w): ...", "handle", {}, "needs ports of one kind (--tcp PORT or --udp PORT)"),
        (
            "def handle(r, w): ...",
            "handle",
            {"tcp_ports": (1,), "udp_ports": (1,)},
            "needs ports of one kind",
        ),
        ("class X: ...", "X", {}, "is no VirtualService (derive it from that class)"),
        (
            "import nothing_like_that",
            "x",
            {},
            "ModuleNotFoundError: No module named 'nothing_like_that' (mine.py, line 1)",
        ),
        ("\n1/0", "x", {}, "ZeroDivisionError: division by zero (mine.py, line 2)"),
        ("def x(:", "x", {}, "SyntaxError: .*mine.py, line 1)"),
    ],
)
def test_what_cannot_be_loaded_is_said_in_one_line(source, text, name, ports, message):
    path = source(text)
    pattern = "".join("\\" + c if c in "()?+" else c for c in message)
    with pytest.raises(LoadError, match=pattern) as error:
        load_service(f"{path}:{name}" if name else path, **ports)
    assert "\n" not in str(error.value)


def test_a_file_that_failed_is_read_again_once_it_is_mended(source):
    path = source("1/0")
    with pytest.raises(LoadError):
        load_service(f"{path}:handle", tcp_ports=(1,))
    source("async def handle(r, w): ... ")  # of another length: bytecode is kept by time and size
    assert load_service(f"{path}:handle", tcp_ports=(1,)).name == "mine"


def test_missing_files_and_modules():
    with pytest.raises(LoadError, match=r"no file /nowhere/x\.py"):
        load_service("/nowhere/x.py:handle")
    with pytest.raises(LoadError, match=r"no module nowhere.x \(a file needs its .py: nowhere.x.py\)"):
        load_service("nowhere.x:handle")


def test_a_class_has_its_own_ports_and_known_settings():
    reference = f"{EXAMPLES}/hello.py:Hello"
    with pytest.raises(LoadError, match="has ports of its own"):
        load_service(reference, tcp_ports=(80,))
    with pytest.raises(LoadError, match=r"Hello\(colour='red'\): TypeError"):
        load_service(reference, settings={"hello": {"colour": "red"}})
    with pytest.raises(LoadError, match="unexpected keyword argument 'colour'"):
        load_services(settings={"dns": {"colour": "red"}})


def test_service_without_handlers_says_so():
    class Bare(VirtualService):
        udp_ports = (1,)

    with pytest.raises(NotImplementedError, match="service bare: no handle_udp"):
        Bare().handle_udp(None, None)
