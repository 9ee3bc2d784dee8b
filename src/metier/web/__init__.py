"""The web server: an HTTP API behind a gate, with JSON-RPC beside it. Needs the extra `web`."""

from metier.app import App
from metier.errors import MissingExtra


def serve(app: App, host: str = "127.0.0.1", port: int = 8765, token: str = "", names: tuple[str, ...] = ()) -> None:
    """Answer requests until interrupted; what is under way is finished first."""
    try:
        import uvicorn

        from metier.web.api import build
        from metier.web.guard import Gate
    except ImportError as error:
        raise MissingExtra("the web server", "web") from error

    application = build(app, Gate.for_address(host, token, names))
    uvicorn.run(
        application,
        host=host,
        port=port,
        log_level="warning",
        timeout_graceful_shutdown=10,
        timeout_keep_alive=15,
        h11_max_incomplete_event_size=64 * 1024,
        limit_concurrency=2_000,
        server_header=False,
    )
