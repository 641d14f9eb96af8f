"""``intattention serve``"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from intattention.cli_options import Cpus, Ctx, Debug, Isa, Model, Threads, Weights, usage

if TYPE_CHECKING:
    from intattention.serve.settings import Settings

LOCAL = ("127.0.0.1", "localhost", "::1")
HOST_NAMES = ("127.0.0.1", "localhost", "[::1]")
MAX_CONNECTIONS = 1000


def serve(
    model: Model,
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: a free one.")] = 8080,
    name: Annotated[str, typer.Option(help="What requests call the model.")] = "",
    api_key: Annotated[
        str, typer.Option(envvar="INTATTENTION_API_KEY", help="Clients must send it.")
    ] = "",
    parallel: Annotated[int, typer.Option(min=1, help="Texts generated at a time.")] = 8,
    queue: Annotated[int, typer.Option(min=0, help="Texts that may wait; more get 429.")] = 64,
    memory: Annotated[
        str, typer.Option(metavar="SIZE", help='KV caches, e.g. "2G"; default: what is free.')
    ] = "",
    max_tokens: Annotated[int, typer.Option(min=1, help="Limit per answer.")] = 2048,
    max_body: Annotated[str, typer.Option(metavar="SIZE", help="Limit per request.")] = "4M",
    grace: Annotated[
        int, typer.Option(min=0, help="Seconds that answers may still take at shutdown.")
    ] = 10,
    threads: Threads = 0,
    cpus: Cpus = "",
    isa: Isa = "",
    ctx: Ctx = 0,
    weights: Weights = "w4g32a",
    debug: Debug = False,
) -> None:
    """Serve a model over HTTP as OpenAI's API does. SIGINT or SIGTERM ends it."""
    try:
        import uvicorn

        from intattention.serve.app import create_app
    except ImportError as error:
        raise RuntimeError(f"{error}; pip install 'intattention[serve]'") from error
    from intattention import machine
    from intattention.cli_model import load_llm
    from intattention.serve.settings import MIN_KEY, Settings, fitting_settings

    with usage():
        if api_key and len(api_key) < MIN_KEY:
            raise ValueError(f"the API key has {len(api_key)} characters, expected {MIN_KEY}")
        memory_bytes = machine.parse_bytes(memory) if memory else None
        body_bytes = machine.parse_bytes(max_body)
    llm = load_llm(model, threads, cpus, isa, ctx, weights)
    with usage():
        settings = fitting_settings(
            Settings(
                model=name or _name(model),
                parallel=parallel,
                queue=queue,
                max_tokens=max_tokens,
                body_bytes=body_bytes,
                api_key=api_key or None,
                hosts=HOST_NAMES if host in LOCAL else (),
            ),
            llm,
            memory_bytes,
        )
    if host not in LOCAL and not api_key:
        typer.echo(f"note: anyone who reaches {host} can use this server (no --api-key)", err=True)
    config = uvicorn.Config(
        create_app(llm, settings),
        host=host,
        port=port,
        lifespan="on",
        log_level="warning",
        server_header=False,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_graceful_shutdown=grace,
    )

    class Server(uvicorn.Server):  # type: ignore[misc]
        async def startup(self, sockets: list[object] | None = None) -> None:
            await super().startup(sockets)
            for server in self.servers if self.started else ():
                for socket in server.sockets:
                    typer.echo(_greeting(settings, *socket.getsockname()[:2]), err=True)

    Server(config).run()


def _name(model: str) -> str:
    """Without the folder, and the ending of a file."""
    path = Path(model).expanduser()
    return path.stem if path.is_file() else path.name if path.is_dir() else model


def _greeting(settings: "Settings", host: str, port: int) -> str:
    from intattention import machine

    address = f"[{host}]" if ":" in host else host
    return (
        f"{settings.model} at http://{address}:{port}/v1: {settings.parallel} texts at a time, "
        f"context {settings.context}, {machine.format_bytes(settings.memory_bytes)} for caches"
    )
