"""Make this checkout ready to run: ``.venv/`` with the locked packages, a Java where the machine has none, the Delta jars.

``python3 scripts/setup.py`` sets up, ``python3 scripts/setup.py bench`` brings besides what the benchmarks need, ``python3
scripts/setup.py lock`` renews the lock files. Standard library only.
Nothing is written outside of this folder, and HOME is not needed: uv, its cache and all scratch files live in ``.tools/``.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import os
import platform
import shutil
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ROOT / ".tools"
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "setup.stamp"
BENCH_STAMP = VENV / "bench.stamp"
LOG = TOOLS / "setup.log"
LOCK = ROOT / "requirements.lock"
JAVA_LOCK = ROOT / "requirements-java.lock"
BENCH_LOCK = ROOT / "requirements-bench.lock"

UV_VERSION = "0.13.8"
OLDEST_PYTHON = "3.10"
LINES_OF_LOG_SHOWN = 25

# Settings of the caller's own environment that would lead pip, uv or the new Python to another place.
FOREIGN_VARIABLES = (
    "CONDA_PREFIX",
    "PIP_PREFIX",
    "PIP_REQUIRE_VIRTUALENV",
    "PIP_TARGET",
    "PIP_USER",
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONHOME",
    "PYTHONPATH",
    "UV_PROJECT_ENVIRONMENT",
    "UV_PYTHON",
    "UV_SYSTEM_PYTHON",
    "VIRTUAL_ENV",
)


class SetupError(Exception):
    """Raised when a step cannot be done; names the user's next step."""

    def __init__(self, what: str, next_step: str) -> None:
        super().__init__(f"{what}\nNext step: {next_step}")


class CommandFailedError(SetupError):
    """Raised when a command ended with an error; what it wrote is in the log."""

    def __init__(self, step: str, next_step: str) -> None:
        log = LOG.read_text(encoding="utf-8", errors="replace")
        tail = log.splitlines()[-LINES_OF_LOG_SHOWN:]
        what = "\n".join([f"{step}: failed. The end of {LOG.relative_to(ROOT)}:", *(f"  | {line}" for line in tail)])
        make_room = f"make room on the disk of {ROOT} (.tools/ may be removed), then run the same again."
        super().__init__(what, make_room if os.strerror(errno.ENOSPC) in log else next_step)


def main(arguments: list[str]) -> int:
    """Set up, with ``bench`` for the benchmarks too, or with ``lock`` renew the lock files; return the exit code."""
    action = {(): set_up, ("bench",): set_up_bench, ("lock",): lock}.get(tuple(arguments))
    if action is None:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        action()
    except SetupError as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped. Run the same again to go on.", file=sys.stderr)
        return 130
    return 0


def set_up() -> None:
    """Install what the lock files name into ``.venv/``; do nothing where it is there already."""
    bundle_java = not machine_has_java()
    state = wanted_state(bundle_java=bundle_java)
    if STAMP.is_file() and STAMP.read_text(encoding="utf-8") == state and (VENV / "bin" / "airflow-cdc").exists():
        return
    started = time.monotonic()
    start_log()
    uv = bring_uv()
    create_environment(uv)
    # The packages of the lock files and no others: those of the benchmarks go.
    BENCH_STAMP.unlink(missing_ok=True)
    install_packages(uv, bundle_java=bundle_java)
    forget_unused(uv)
    install_project(uv)
    install_runtime()
    STAMP.write_text(state, encoding="utf-8")
    print(f"setup: ready in {time.monotonic() - started:.0f} s", flush=True)


def set_up_bench() -> None:
    """Set up, and bring what only the benchmarks need into the same environment."""
    set_up()
    wanted = hashlib.sha256(BENCH_LOCK.read_bytes()).hexdigest()
    if BENCH_STAMP.is_file() and BENCH_STAMP.read_text(encoding="utf-8") == wanted:
        return
    start_log()
    uv = bring_uv()
    # What both locks name has one version, and is there.
    command: list[str | Path] = [uv, "pip", "install", "--python", PYTHON, "--require-hashes", "--no-deps", "-r", BENCH_LOCK]
    advice = "see that this machine reaches its Python package registry, then run the same again."
    run(f"packages of {BENCH_LOCK.name}", [*command, "--offline"], advice, otherwise=command)
    BENCH_STAMP.write_text(wanted, encoding="utf-8")


def machine_has_java() -> bool:
    """Whether the machine brings a Java that Spark runs on."""
    sys.path.insert(0, str(ROOT))
    from airflow_cdc.runtime import installed_java

    return installed_java() is not None


def wanted_state(*, bundle_java: bool) -> str:
    """Return a digest of everything that decides what ``.venv/`` holds."""
    # Its data names the jars.
    runtime = sorted(path for path in (ROOT / "airflow_cdc" / "runtime").iterdir() if path.suffix in {".py", ".json"})
    digest = hashlib.sha256()
    for path in (LOCK, JAVA_LOCK, ROOT / "pyproject.toml", Path(__file__), *runtime):
        digest.update(path.read_bytes())
    for fact in (ROOT, platform.python_version(), platform.machine(), bundle_java):
        digest.update(f"{fact}\n".encode())
    return digest.hexdigest()


def bring_uv() -> Path:
    """Return the pinned uv; install it into ``.tools/`` with pip where it is not there yet."""
    folder = TOOLS / f"uv-{UV_VERSION}"
    uv = folder / "bin" / "uv"
    if uv.exists():
        return uv
    shutil.rmtree(folder, ignore_errors=True)
    pip_install = ["pip", "install", "--only-binary=:all:", "--no-cache-dir", f"uv=={UV_VERSION}"]
    advice = "see that this machine reaches its Python package registry with pip, then run the same again."
    if has_module("ensurepip"):
        run("Python for uv", [sys.executable, "-m", "venv", folder], advice)
        run(f"uv {UV_VERSION}", [folder / "bin" / "python", "-m", *pip_install], advice)
    elif has_module("pip"):
        run(f"uv {UV_VERSION}", [sys.executable, "-m", *pip_install, "--target", folder], advice)
    else:
        raise SetupError(
            f"{sys.executable} has neither venv with ensurepip nor pip, so that nothing can be installed.",
            "install one of them (Debian, Ubuntu: apt-get install python3-venv) and run the same again.",
        )
    return uv


def has_module(name: str) -> bool:
    """Whether the invoking Python can import a module; Debian packs ensurepip and pip apart from Python."""
    return subprocess.run([sys.executable, "-c", f"import {name}"], capture_output=True, check=False).returncode == 0


def create_environment(uv: Path) -> None:
    """Make ``.venv/`` of the invoking Python, unless it is one already."""
    if is_own_environment():
        return
    run(
        f"Python {platform.python_version()} in .venv",
        [uv, "venv", "--clear", "--prompt", "airflow-cdc", "--python", sys.executable, VENV],
        "remove the folder .venv and run the same again.",
    )


def is_own_environment() -> bool:
    """Whether ``.venv/`` was made here, by this Python version: scripts in a copied or moved one start the old one's Python."""
    config, activate = VENV / "pyvenv.cfg", VENV / "bin" / "activate"
    if not (config.is_file() and activate.is_file() and PYTHON.exists()):
        return False
    made_by = dict(line.split(" = ", 1) for line in config.read_text(encoding="utf-8").splitlines() if " = " in line)
    version = made_by.get("version_info") or made_by.get("version")
    return version == platform.python_version() and str(VENV) in activate.read_text(encoding="utf-8")


def install_packages(uv: Path, *, bundle_java: bool) -> None:
    """Make the packages of ``.venv/`` those of the lock files, no more and no fewer."""
    locks = [LOCK, JAVA_LOCK] if bundle_java else [LOCK]
    names = " and ".join(lock.name for lock in locks)
    # pyspark comes as source: the lock also pins the setuptools that builds it.
    command: list[str | Path] = [uv, "pip", "sync", "--python", PYTHON, "--require-hashes", "--build-constraints", LOCK, *locks]
    advice = "see that this machine reaches its Python package registry, then run the same again."
    # uv asks the registry about every package even where all of them are there: first without.
    run(f"packages of {names} (0.7 GB the first time)", [*command, "--offline"], advice, otherwise=command)


def install_project(uv: Path) -> None:
    """Install the checkout itself, editable, built with what the lock file brought: nothing is downloaded."""
    how = ["--offline", "--no-deps", "--no-build-isolation", "--editable"]
    command: list[str | Path] = [uv, "pip", "install", "--python", PYTHON, *how, ROOT]
    run("airflow-cdc from this folder", command, "look for what is wrong in pyproject.toml.")


def install_runtime() -> None:
    """Bring the Delta jars, and the bundled Java where it is wanted."""
    command: list[str | Path] = [PYTHON, "-m", "airflow_cdc.runtime", "install"]
    run("Java and Delta jars", command, "the one in the last line above.")


def lock() -> None:
    """Renew the lock files from ``pyproject.toml``; versions that still fit are kept."""
    start_log()
    uv = bring_uv()
    compile_lock: list[str | Path] = [uv, "pip", "compile", "--universal", "--generate-hashes", "--python-version", OLDEST_PYTHON]
    advice = "look for requirements in pyproject.toml that exclude each other."
    run(LOCK.name, [*compile_lock, "pyproject.toml", "--group", "dev", "-o", LOCK.name], advice)
    run(JAVA_LOCK.name, [*compile_lock, "--group", "java", "-o", JAVA_LOCK.name], advice)
    run(BENCH_LOCK.name, [*compile_lock, "--group", "bench", "-c", LOCK.name, "-o", BENCH_LOCK.name], advice)
    for path in (LOCK, JAVA_LOCK, BENCH_LOCK):
        if "://" in path.read_text(encoding="utf-8"):
            raise SetupError(f"{path.name} names a host.", "unset what makes uv write it (UV_EMIT_INDEX_URL and the like) and lock again.")


def bring_tools(arguments: list[str], name: str, bring: Callable[[Path], None]) -> int:
    """Bring what some tests need into a folder of its own; return the exit code.

    :param arguments: of the command line: the folder, where one is named; else ``NAME_TOOLS`` names it, else it is ``.tools/<name>``.
    :param bring: brings what is not there.
    """
    variable = f"{name.replace('-', '_').upper()}_TOOLS"
    try:
        bring(Path(arguments[0] if arguments else os.environ.get(variable) or TOOLS / name).resolve())
    except SetupError as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    return 0


def is_brought(folder: Path, state: str) -> bool:
    """Return whether a folder's stamp is that of a state: the folder then holds what the state describes."""
    stamp = folder / "stamp"
    return stamp.is_file() and stamp.read_text(encoding="utf-8") == state


def install_beside(folder: Path, step: str, packages: list[str]) -> None:
    """Install packages alone into ``python`` of a folder; the rest of what they need is in ``.venv/``."""
    command = [bring_uv(), "pip", "install", "--python", PYTHON, "--no-deps", "--target", folder / "python", *packages]
    run(step, command, "see that this machine reaches its Python package registry.")


def bring_environment(folder: Path, what: str, options: list[str | Path]) -> Path:
    """Make ``venv`` in a folder, with the project's requirements in other versions than ``.venv/``; do nothing if it is there.

    :param what: all that decides what the environment holds, beside the options and the invoking Python.
    :param options: of ``uv pip compile``, which chooses the versions.
    :return: its Python.
    :raises SetupError: if a step cannot be done.
    """
    python = folder / "venv" / "bin" / "python"
    wanted = "\n".join([sys.version, *map(str, options), what, (ROOT / "pyproject.toml").read_text(encoding="utf-8")])
    if is_brought(folder, wanted):
        return python
    start_log()
    uv = bring_uv()
    versions = folder / "versions.txt"
    advice = "see that this machine reaches its Python package registry, then run the same again."
    chosen: list[str | Path] = [uv, "pip", "compile", "--quiet", "--python", sys.executable, "pyproject.toml", *options]
    run(f"versions for {folder.name}", [*chosen, "-o", versions], advice)
    run("an environment for them", [uv, "venv", "--clear", "--python", sys.executable, folder / "venv"], advice)
    run("the packages (1 GB the first time)", [uv, "pip", "sync", "--python", python, versions], advice)
    forget_unused(uv)
    (folder / "stamp").write_text(wanted, encoding="utf-8")
    return python


def forget_unused(uv: Path) -> None:
    """Remove from uv's cache what nothing refers to: 2 GB of each pyspark that it built again from the same source."""
    run("what the cache holds in vain", [uv, "cache", "prune"], "remove the folder .tools/uv-cache.")


def run_tests(python: Path, arguments: Sequence[str], **variables: str) -> int:
    """Run pytest over this checkout's tests with another environment's Python; return its exit code."""
    path = os.pathsep.join([str(python.parent), os.environ["PATH"]])
    environment = {**child_environment(), "PYTHONPATH": str(ROOT), "PATH": path, **variables}
    command = [str(python), "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, env=environment, cwd=ROOT, check=False).returncode


def start_log() -> None:
    """Begin an empty log."""
    (TOOLS / "tmp").mkdir(parents=True, exist_ok=True)
    LOG.write_text("", encoding="utf-8")


def run(step: str, command: list[str | Path], advice: str, *, otherwise: list[str | Path] | None = None) -> None:
    """Run one command, or where it fails the other one, into the log, with one line on the terminal."""
    print(f"setup: {step} ...", end="", flush=True)
    started = time.monotonic()
    if not (succeeds(command) or (otherwise and succeeds(otherwise))):
        print(" failed", flush=True)
        raise CommandFailedError(step, advice)
    print(f" {time.monotonic() - started:.0f} s", flush=True)


def succeeds(command: list[str | Path]) -> bool:
    """Run one command into the log; return whether it ended well."""
    with LOG.open("a", encoding="utf-8") as log:
        print("$", *command, file=log, flush=True)
        words = [str(word) for word in command]
        return subprocess.run(words, stdout=log, stderr=subprocess.STDOUT, env=child_environment(), cwd=ROOT, check=False).returncode == 0


def child_environment() -> dict[str, str]:
    """Return the environment for pip, uv and Python: nothing leads out of this folder."""
    own = {
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "TMPDIR": str(TOOLS / "tmp"),
        "UV_CACHE_DIR": str(TOOLS / "uv-cache"),
        "UV_CUSTOM_COMPILE_COMMAND": "make lock",
        "UV_HTTP_TIMEOUT": os.environ.get("UV_HTTP_TIMEOUT", "120"),
        "UV_NO_PROGRESS": "1",
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_PYTHON_INSTALL_DIR": str(TOOLS / "python"),
    }
    if machine_has_certificates():
        # uv brings a list of its own, which does not know the certificate of a company's proxy.
        own["UV_SYSTEM_CERTS"] = "1"
    if index := pip_index():
        own["UV_DEFAULT_INDEX"] = index
    return {**{name: value for name, value in os.environ.items() if name not in FOREIGN_VARIABLES}, **own}


@functools.cache
def pip_index() -> str | None:
    """Return the package index that the machine's pip is set to, or None: uv does not read pip's settings."""
    if any(name in os.environ for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL")):
        return None
    command = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    configured = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return os.environ.get("PIP_INDEX_URL") or configured or None


def machine_has_certificates() -> bool:
    """Whether the machine has certificate authorities of its own; a bare container may have none."""
    paths = ssl.get_default_verify_paths()
    folder = Path(paths.capath) if paths.capath else None
    return sys.platform == "darwin" or bool(paths.cafile) or (folder is not None and any(folder.iterdir()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
