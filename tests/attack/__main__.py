"""``python -m tests.attack SEED [COUNT]``: play histories, print those that fail, and keep their folders."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.attack.features import Feature
from tests.attack.history import play, shrink


def _features(text: str) -> list[Feature]:
    return [Feature(name) for name in text.split(",") if name]


def main() -> int:
    ask = argparse.ArgumentParser(prog="python -m tests.attack", description="Play histories of a simulated source, and compare tables.")
    ask.add_argument("seed", type=int, help="the first history")
    ask.add_argument("count", type=int, nargs="?", default=1, help="how many")
    ask.add_argument("--engine", choices=["native", "auto", "spark", "mixed"], default="native", help="mixed: auto or spark, run by run")
    ask.add_argument("--only", type=_features, default=list(Feature), help="features that a history may have, with commas between")
    ask.add_argument("--without", type=_features, default=[], help="features that it may not have")
    ask.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "attack", help="holds failing histories")
    ask.add_argument("--reasons", action="store_true", help="also print why histories need Spark")
    ask.add_argument("--all", action="store_true", help="print those that are right as well")
    ask.add_argument("--shrink", action="store_true", help="leave out features of a failing history for as long as it fails")
    asked = ask.parse_args()
    allowed = [feature for feature in asked.only if feature not in asked.without]
    tally: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    began, failed = time.process_time(), 0
    for seed in range(asked.seed, asked.seed + asked.count):
        folder = asked.folder / str(seed)
        outcome = play(seed, folder, allowed, asked.engine)
        if asked.shrink and outcome.is_failure:
            outcome = shrink(outcome, folder, asked.engine)
        tally[outcome.status] += 1
        failed += outcome.is_failure
        if outcome.is_failure or asked.count == 1 or asked.all:
            print(outcome, f"\n    kept: {folder}" if outcome.is_failure else "", flush=True)
        elif outcome.lines:
            reasons[outcome.lines[0]] += 1
    print(dict(tally), f"{time.process_time() - began:.0f} s of CPU")
    if asked.reasons:
        for reason, count in reasons.most_common(20):
            print(f"  {count} {reason}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
