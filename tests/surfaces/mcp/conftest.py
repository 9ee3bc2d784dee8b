"""Runs the asynchronous tests of this folder, none of them longer than five minutes."""

import inspect

import anyio
import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in inspect.signature(test).parameters}

    async def bounded() -> None:
        with anyio.fail_after(300):
            await test(**given)

    anyio.run(bounded)
    return True
