"""The blocking client equals what tools/gen_blocking.py generates from the async one."""

from __future__ import annotations

import shutil
from importlib import util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
TOOL = ROOT / "tools" / "gen_blocking.py"


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = util.spec_from_file_location("gen_blocking", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_differences_are_found_and_written(tool: ModuleType, tmp_path: Path) -> None:
    for name in ("asynchronous", "blocking"):
        shutil.copytree(tool.CALLS / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    assert tool.main(["--check"], tmp_path) == 0
    changed, added, gone = (tmp_path / "blocking" / name for name in ("client.py", "more.py", "names.py"))
    changed.write_text(changed.read_text().replace("preview=True", "preview=False"))
    added.write_text("")
    gone.unlink()
    assert tool.main(["--check"], tmp_path) == 1
    assert tool.main([], tmp_path) == 0
    assert tool.main(["--check"], tmp_path) == 0
    assert (added.exists(), gone.exists()) == (False, True)


def test_a_call_that_waits_blocks(tool: ModuleType) -> None:
    source = '''
class AsyncA(AsyncB):
    """The async client: tasks that share it wait."""

    async def a(self, given: Iterable[int] | AsyncIterable[int]) -> AsyncIterator[int]:
        async with self._lock, psycopg.AsyncConnection.connect() as connection:
            async for one in given:
                yield await self.b(one)
'''
    assert (
        tool.blocking(source)
        == '''
class A(B):
    """The blocking client: threads that share it wait."""

    def a(self, given: Iterable[int]) -> Iterator[int]:
        with self._lock, psycopg.connect() as connection:
            for one in given:
                yield self.b(one)
'''
    )


@pytest.mark.parametrize("source", ["asyncio.sleep(1)", '"""Call it with await."""', "# in the event loop"])
def test_code_that_it_cannot_translate_is_refused(tool: ModuleType, source: str) -> None:
    with pytest.raises(ValueError, match="cannot be made blocking"):
        tool.blocking(source)
