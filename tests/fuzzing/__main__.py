"""Many calls, from the command line: python -m tests.fuzzing DSN CALLS SEED."""

from __future__ import annotations

import sys
import time

from tests.fuzzing.fuzzer import Fuzzer


def main(dsn: str, calls: str = "10000", seed: str = "1") -> int:
    fuzzer = Fuzzer(dsn, int(seed))
    step = 1_000
    try:
        for until in range(step, int(calls) + step, step):
            report = fuzzer.run(min(until, int(calls)))
            print(
                f"{time.strftime('%H:%M:%S')} {report.calls} calls, {len(report.findings)} findings",
                flush=True,
            )
    finally:
        print(fuzzer.report)
        fuzzer.close()
    never = sorted(f.name for f in fuzzer.functions if not report.succeeded[f.name])
    print("ms:", dict(report.took.most_common(12)))
    sizes = ", ".join(f"{name} {sizes[-1] >> 20} MB" for name, sizes in report.memory.items() if sizes)
    print(f"never succeeded: {', '.join(never) or 'none'}; memory of the sessions: {sizes}")
    return 1 if report.findings else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
