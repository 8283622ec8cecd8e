"""Mutation testing of the heart: change one place of the code, run the tests that run this place, and see whether one of them fails.

``python scripts/mutate.py [MOST]``, after ``make setup``: MOST mutants of each package (60), drawn by a fixed seed. Cosmic-ray makes and
undoes them in copies of this checkout; its operators change Python, :mod:`mutation_sql` changes the SQL in the texts. The tests that judge
need no Spark: a place that none of them runs is judged by Spark's tests only, and is counted apart. ``scripts/mutants.yaml`` has the
mutants that change nothing that can be seen, with the reason. Results are in ``build/mutation/``; the docs' table is in
``docs/explanation/mutation-testing.md``.
"""

from __future__ import annotations

import ast
import difflib
import importlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import setup
from setup import ROOT, TOOLS

SEED, MOST, SECONDS, JOBS = 2026, 60, 120, 2
"""Of the draw; mutants of each package; of one mutant; mutants at a time."""
JUDGED_SECONDS = 30
"""The tests of one mutant are the quickest that run its place, for so long."""
PACKAGES = ("model/position", "pipeline/apply/native", "pipeline/evidence", "pipeline/reconcile")
JUDGES = (
    "attack/single_histories.py",
    "attack/test_state_machine.py",
    "golden",
    "properties",
    "stories",
    "unit/cli",
    "unit/jobs",
    "unit/model",
    "unit/pipeline",
    "unit/plugins",
)
LIBRARIES = ["cosmic-ray==8.7.0", "coverage==7.17.5", "parso==0.8.7", "pytest-cov==7.1.0", "stevedore==5.10.0"]
LEFT_OUT, IDENTITY = ("ExceptionReplacer", "RemoveDecorator"), ("Eq_Is", "Eq_IsNot", "NotEq_Is", "NotEq_IsNot")
"""Operators whose mutants hardly ever load; replacements that small numbers do not show."""
FOLDER, RESULTS = TOOLS / "mutation", ROOT / "build" / "mutation"
PYTEST = (sys.executable, "-m", "pytest", "--no-spark", "-q", "-p", "no:cacheprovider", "-p", "no:xdist")


@dataclass(frozen=True)
class Mutant:
    """One change of one place."""

    package: str
    file: str
    operator: str
    occurrence: int
    line: int
    column: int
    was: str = ""
    """The lines that it changes."""
    now: str = ""


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant."""

    mutant: Mutant
    outcome: str
    """killed, timeout, survived, equivalent, not judged, or spark: no test without Spark runs its place."""
    text: str = ""
    """The test that failed, or the reason."""


def main(arguments: list[str]) -> int:
    """Draw, judge and count."""
    most = int(arguments[0]) if arguments else MOST
    try:
        bring(FOLDER)
    except setup.SetupError as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    RESULTS.mkdir(parents=True, exist_ok=True)
    sys.path.append(str(FOLDER / "python"))
    run_judges()
    judges = Judges()
    verdicts = []
    with ProcessPoolExecutor(JOBS, initializer=enter_copy) as pool, (RESULTS / "verdicts.jsonl").open("w", encoding="utf-8") as log:
        drawn = [mutant for package in PACKAGES for mutant in draw(package, most)]
        print(f"{len(drawn)} mutants", flush=True)
        for verdict in pool.map(judge, drawn, [judges.of(mutant) for mutant in drawn]):
            verdicts.append(verdict)
            print(json.dumps(asdict(verdict), ensure_ascii=False), file=log, flush=True)
            if verdict.outcome == "survived":
                print(
                    f"survived: {verdict.mutant.file}:{verdict.mutant.line} {verdict.mutant.operator}\n{change_of(verdict.mutant)}",
                    flush=True,
                )
    print_table(verdicts)
    return 0


def bring(folder: Path) -> None:
    """Bring the libraries, without what is in ``.venv/`` already."""
    state = "\n".join([sys.version, *LIBRARIES])
    if setup.is_brought(folder, state):
        return
    setup.start_log()
    shutil.rmtree(folder, ignore_errors=True)
    setup.install_beside(folder, "Cosmic-ray and coverage", LIBRARIES)
    (folder / "stamp").write_text(state, encoding="utf-8")


def run_judges() -> None:
    """Run the tests that need no Spark once, to know which lines each runs, and how long it takes."""
    sources = ",".join(f"airflow_cdc.{package.replace('/', '.')}" for package in PACKAGES)
    (FOLDER / "coveragerc").write_text(f"[run]\nsource = {sources}\ndata_file = {RESULTS / 'coverage'}\n", encoding="utf-8")
    command = [*PYTEST, "--cov", f"--cov-config={FOLDER / 'coveragerc'}", "--cov-context=test", "--cov-report=", "--durations=0"]
    print("running the tests once ...", flush=True)
    with (RESULTS / "judges.txt").open("w", encoding="utf-8") as log:
        ran = subprocess.run([*command, *(f"tests/{each}" for each in JUDGES)], cwd=ROOT, env=with_libraries(ROOT), stdout=log, check=False)
    if ran.returncode:
        raise SystemExit(f"The tests fail without a mutant: {RESULTS / 'judges.txt'}")


def with_libraries(root: Path) -> dict[str, str]:
    """Return the environment in which a checkout's tests find the libraries."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), str(FOLDER / "python")])}


def draw(package: str, most: int) -> list[Mutant]:
    """Return mutants of a package: of each drawn place and kind of operator one, in the code's order."""
    places: dict[tuple[str, str, int, int], list[Mutant]] = {}
    for path in sorted((ROOT / "airflow_cdc" / package).glob("*.py")):
        for mutant in mutants_of(path, package):
            kind = mutant.operator.split("_")[0]
            places.setdefault((mutant.file, kind, mutant.line, mutant.column), []).append(mutant)
    chance = random.Random(f"{SEED} {package}")
    chosen = chance.sample(sorted(places), min(most, len(places)))
    drawn = (with_lines(chance.choice(places[place])) for place in sorted(chosen))
    return [mutant for mutant in drawn if mutant]


def mutants_of(path: Path, package: str) -> Iterator[Mutant]:
    """Return all mutants of a file but those of annotations, which nothing evaluates."""
    from cosmic_ray.ast import ast_nodes, get_ast

    nodes = list(ast_nodes(get_ast(path.read_text(encoding="utf-8"))))
    for name, operator in operators().items():
        places = [(node, place) for node in nodes for place, _ in operator.mutation_positions(node)]
        for occurrence, (node, (line, column)) in enumerate(places):
            if not (is_left_out(node) or name.endswith(IDENTITY)):
                yield Mutant(package, str(path.relative_to(ROOT)), name, occurrence, line, column)


def with_lines(mutant: Mutant) -> Mutant | None:
    """Return a mutant with the lines that it changes, before and after; None where it is no Python."""
    from cosmic_ray.mutating import mutate_code

    source = (ROOT / mutant.file).read_text(encoding="utf-8")
    mutated = mutate_code(source, operators()[mutant.operator], mutant.occurrence)
    try:
        ast.parse(mutated)
    except SyntaxError:
        return None
    old, new = source.split("\n"), mutated.split("\n")
    spans = [each for each in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes() if each[0] != "equal"]
    return replace(mutant, was="\n".join(old[spans[0][1] : spans[-1][2]]), now="\n".join(new[spans[0][3] : spans[-1][4]]))


def operators() -> dict[str, Any]:
    """Return the operators by name, ours among them, without those that ask for arguments, and those whose mutants hardly ever load."""
    from cosmic_ray.operators.provider import OperatorProvider
    from mutation_sql import SqlText

    provider = OperatorProvider()
    return {
        "SqlText": SqlText(),
        **{name: provider[name]() for name in sorted(provider) if name not in LEFT_OUT and not provider[name].arguments()},
    }


def is_left_out(node: Any) -> bool:
    """Whether a node is part of a type, which nothing evaluates, or of a decorator: a frozen dataclass behaves as one that is not."""
    while node.parent is not None:
        if node.type == "decorator":
            return True
        inner, node = node, node.parent
        at = next(index for index, child in enumerate(node.children) if child is inner)
        before = node.children[at - 1] if at else None
        if before is not None and getattr(before, "value", "") in (":", "->") and node.type in ("annassign", "tfpdef", "funcdef"):
            return inner.type != "suite"
    return False


def change_of(mutant: Mutant) -> str:
    """Return a mutant for people: its place, and its lines."""
    lines = [f"  {sign} {line.strip()}" for sign, text in (("-", mutant.was), ("+", mutant.now)) for line in text.split("\n")]
    return "\n".join([f"survived: {mutant.file}:{mutant.line} {mutant.operator}", *lines])


class Judges:
    """Which tests run a place."""

    def __init__(self) -> None:
        from coverage import CoverageData

        self._data = CoverageData(str(RESULTS / "coverage"))
        self._data.read()
        self._took: Counter[str] = Counter()
        listed = (RESULTS / "judges.txt").read_text(encoding="utf-8")
        for seconds, test in re.findall(r"^\s*([\d.]+)s (?:setup|call)\s+(\S.*)$", listed, re.MULTILINE):
            self._took[test.strip()] += int(float(seconds) * 1000)

    def of(self, mutant: Mutant) -> list[str]:
        """Return the quickest tests that run a mutant's place; a file's constants are run by all tests that run one of its functions."""
        ran = self._data.contexts_by_lineno(str(ROOT / mutant.file))
        lines = statement_of((ROOT / mutant.file).read_text(encoding="utf-8"), mutant.line)
        tests = {context.split("|")[0] for line in lines or ran for context in ran.get(line, ()) if context}
        chosen, seconds = [], 0.0
        for test in sorted(tests, key=lambda each: (self._took[each], each)):
            seconds += self._took[test] / 1000
            if seconds > JUDGED_SECONDS:
                break
            chosen.append(test)
        return chosen


def statement_of(source: str, line: int) -> range | None:
    """Return the lines of the innermost statement at a line, without its body; None outside of functions."""
    found: range | None = None
    pending: list[tuple[ast.AST, bool]] = [(ast.parse(source), False)]
    while pending:
        node, inside = pending.pop()
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt) and child.lineno <= line <= (child.end_lineno or 0):
                last = body[0].lineno - 1 if isinstance(body := getattr(child, "body", None), list) and body else child.end_lineno
                is_in = line <= max(last or 0, child.lineno)
                found = range(child.lineno, max(last or 0, child.lineno) + 1) if inside and is_in else found
                pending.append((child, inside or isinstance(child, ast.FunctionDef)))
            elif not isinstance(child, ast.stmt):
                pending.append((child, inside))
    return found


def enter_copy() -> None:
    """Make a copy of the checkout for this process, stand in it, and import what each run of tests needs."""
    copy = FOLDER / "copies" / str(os.getpid())
    listed = (
        subprocess.run(["git", "ls-files", "-coz", "--exclude-standard"], cwd=ROOT, stdout=subprocess.PIPE, check=True)
        .stdout.decode()
        .split("\0")
    )
    compiled = [str(path.relative_to(ROOT)) for folder in ("airflow_cdc", "tests") for path in (ROOT / folder).rglob("*.pyc")]
    for name in [*filter(None, listed), *compiled]:
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
    os.chdir(copy)
    os.environ.update(with_libraries(copy))
    sys.path[:] = [str(copy), *(path for path in sys.path if path != str(ROOT))]
    # A mutant that leaves compiled code would judge the next one.
    sys.dont_write_bytecode = True
    for library in ("_pytest.config", "pytest", "hypothesis", "pyspark.sql", "duckdb", "deltalake", "pyarrow.compute", "typer", "yaml"):
        importlib.import_module(library)


def judge(mutant: Mutant, tests: list[str]) -> Verdict:
    """Return what becomes of a mutant."""
    from cosmic_ray.mutating import use_mutation

    if reason := known_equivalents().get((mutant.file, mutant.was.strip(), mutant.now.strip())):
        return Verdict(mutant, "equivalent", reason)
    if not tests:
        return Verdict(mutant, "spark")
    with use_mutation(Path(mutant.file), operators()[mutant.operator], mutant.occurrence):
        code, output = run_apart(tests)
    if code is None:
        return Verdict(mutant, "timeout", f"of {len(tests)} tests")
    if not code:
        return Verdict(mutant, "survived", f"{len(tests)} tests passed")
    # pytest ends with an error where it does not find a test, too.
    failed = re.search(r"^(FAILED|ERROR|ImportError) .*|^\w*Error: .*", output, re.MULTILINE)
    return Verdict(mutant, "killed" if failed else "not judged", failed[0][:300] if failed else output[-1000:])


def run_apart(tests: list[str]) -> tuple[int | None, str]:
    """Run tests in a child of this process, which has imported the libraries, and return exit code and output; None: out of time."""
    import pytest

    log = Path("mutant.txt").resolve()
    child = os.fork()
    if not child:
        os.setsid()
        into = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for standard in (1, 2):
            os.dup2(into, standard)
        code = 1
        try:
            code = pytest.main([*PYTEST[3:], "-x", *tests])
        except BaseException:  # noqa: BLE001 - whatever it is, this process ends here
            traceback.print_exc()
        sys.stdout.flush()
        os._exit(int(code))
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status), log.read_text(encoding="utf-8", errors="replace")
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None, ""


def known_equivalents() -> Mapping[tuple[str, str, str], str]:
    """Return the reasons why mutants that were looked at change nothing, by file and lines."""
    import yaml

    listed = yaml.safe_load((ROOT / "scripts" / "mutants.yaml").read_text(encoding="utf-8")) or []
    return {(each["file"], each["was"].strip(), each["now"].strip()): each["why"] for each in listed}


def print_table(verdicts: list[Verdict]) -> None:
    """Print the docs' table."""
    outcomes = ("killed", "timeout", "survived", "equivalent", "spark", "not judged")
    print("| package | drawn | " + " | ".join(outcomes) + " |")
    for package in PACKAGES:
        counts = Counter(each.outcome for each in verdicts if each.mutant.package == package)
        print(f"| `{package}` | {counts.total()} | " + " | ".join(str(counts[outcome]) for outcome in outcomes) + " |")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
