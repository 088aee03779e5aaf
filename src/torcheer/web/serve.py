"""Runs the server: finds a port, prints the address, and ends when nobody looks any more."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import threading
from dataclasses import dataclass

import uvicorn

from torcheer.errors import TorcheerError
from torcheer.web.app import Activity, application
from torcheer.web.guard import Guard
from torcheer.web.shelf import Shelf

NUM_PORTS = 100  # tried from the one asked for
LOOPBACK = ("127.0.0.1", "localhost", "::1")
CHECK_EVERY_S = 1.0


@dataclass(frozen=True)
class Address:
    """Where to listen, and under which names."""

    host: str = "127.0.0.1"
    port: int = 5000
    names: tuple[str, ...] = ()  # further names this host is asked under
    token: str | None = None  # None: a random one, where one is needed


def free_socket(host: str, port: int) -> socket.socket:
    """Return a socket bound to the port asked for, or to the next free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for candidate in range(port, port + NUM_PORTS) if port else (0,):
        bound = socket.socket(family, socket.SOCK_STREAM)
        if os.name != "nt":  # Windows would let two servers share the port
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((host, candidate))
            bound.listen()
        except OSError as error:
            bound.close()
            if isinstance(error, socket.gaierror) or error.errno in _NOT_HERE:
                raise TorcheerError(f"This machine has no address {host!r} to listen on. Leave out --host.") from None
        except OverflowError:
            bound.close()
            break
        else:
            return bound
    raise TorcheerError(f"No port from {port} to {port + NUM_PORTS - 1} is free on {host}. Give another with --port.")


def serve(shelf: Shelf, address: Address, *, idle_s: float = 0, parent: int | None = None) -> None:
    """Serve until interrupted; with ``idle_s``, until nobody has looked for so long and the parent has ended."""
    bound = free_socket(address.host, address.port)
    is_open = address.host not in LOOPBACK
    token = (address.token or secrets.token_urlsafe(24)) if is_open or address.token else None
    port = bound.getsockname()[1]
    shown_host = "localhost" if address.host in ("127.0.0.1", "::1", "0.0.0.0", "::") else address.host
    activity = Activity()
    names = {*address.names, address.host, *([socket.gethostname()] if is_open else [])}
    guarded = Guard(application(shelf, activity), names, token)
    server = uvicorn.Server(uvicorn.Config(guarded, log_level="warning", lifespan="off", timeout_graceful_shutdown=1))
    threading.Thread(target=shelf.read_ahead, daemon=True).start()
    print(f"http://{shown_host}:{port}/" + (f"?token={token}" if token else ""), flush=True)
    asyncio.run(_run(server, bound, activity, idle_s, parent))


async def _run(
    server: uvicorn.Server, bound: socket.socket, activity: Activity, idle_s: float, parent: int | None
) -> None:
    ending = asyncio.create_task(_end_when_idle(server, activity, idle_s, parent))
    try:
        await server.serve([bound])
    finally:
        ending.cancel()


async def _end_when_idle(server: uvicorn.Server, activity: Activity, idle_s: float, parent: int | None) -> None:
    while idle_s > 0:
        await asyncio.sleep(min(CHECK_EVERY_S, idle_s))
        if activity.idle_s() > idle_s and not (parent is not None and _is_alive(parent)):
            server.should_exit = True
            return


def _is_alive(process: int) -> bool:
    """Whether the process that started this one still runs: when it ends, this one gets another parent."""
    return os.getppid() == process


_NOT_HERE = (99, 49, 10049)  # EADDRNOTAVAIL on Linux, macOS, Windows
