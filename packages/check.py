"""Builds what is released and tries it where there is no source tree: python packages/check.py [PYTHON ...]

Wheels and source distribution are left in dist/, and in build/sbom a list of all that an installation consists of
(CycloneDX). Each PYTHON (those of VERSIONS on the PATH, if none is given) gets an environment of its own, with the
newest versions of all that trustirl needs, and the first one also an installation from the source distribution. `make
release-check` installs what this needs.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
SBOM = ROOT / "build" / "sbom" / "trustirl.cdx.json"
VERSIONS = ("3.11", "3.12", "3.13")
MOST = 5 * 2**20  # bytes of the wheel that everybody downloads
OURS = ("PYTHONPATH", "PYTHONHOME", "JAX_", "XLA_")  # what an environment of somebody else would not have


def run(*command: str | Path, where: Path = ROOT, **variables: str) -> str:
    """What a command prints, run without what this process has set up; its failure ends everything."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(OURS)} | variables
    done = subprocess.run(command, cwd=where, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return done.stdout


def build() -> tuple[Path, Path]:
    """Both wheels and the source distribution, the first wheel out of the last; of it the paths."""
    shutil.rmtree(DIST, ignore_errors=True)
    run(sys.executable, "-m", "build", "--outdir", DIST)
    run(sys.executable, "-m", "build", "--wheel", "--outdir", DIST, "packages/demos")
    run(sys.executable, "-m", "twine", "check", "--strict", *DIST.iterdir())
    (wheel,), (source,) = DIST.glob("trustirl-*.whl"), DIST.glob("trustirl-*.tar.gz")
    if wheel.stat().st_size >= MOST:
        sys.exit(f"{wheel.name} has {wheel.stat().st_size:,} bytes, and {MOST:,} are too many.")
    for file in sorted(DIST.iterdir()):
        print(f"{file.stat().st_size:>11,} bytes  {file.name}", flush=True)
    return wheel, source


def attempt(python: str, wheel: Path, source: Path | None) -> None:
    """Install into a new environment and try it."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        run(python, "-m", "venv", place / "env")
        inside = place / "env" / ("Scripts" if os.name == "nt" else "bin") / "python"
        install = (inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--find-links", DIST)
        run(*install, wheel)
        if source:
            bill = ("-m", "cyclonedx_py", "environment", "--pyproject", "pyproject.toml", "--mc-type", "library")
            SBOM.parent.mkdir(parents=True, exist_ok=True)
            run(sys.executable, *bill, "--output-reproducible", "-o", SBOM, inside)
        told = run(inside, "-m", "trustirl", "demos", "list", where=place)
        assert "packaged:CartPole-v1" in told, told
        assert "pip install 'trustirl[demos]'" in told, told
        run(*install, f"{wheel}[mujoco,demos]")
        (place / "try").mkdir()
        programs = {
            "JAX_COMPILATION_CACHE_DIR": str(place / "programs")
        }  # what is compiled once is not compiled again
        run(inside, ROOT / "packages" / "smoke.py", ROOT / "README.md", where=place / "try", **programs)
        if source:
            run(*install, "--force-reinstall", "--no-deps", source)
            run(
                inside,
                "-m",
                "trustirl",
                "train",
                "piro",
                "--task",
                "chain",
                "--preset",
                "smoke",
                "--no-compare",
                where=place,
            )
        print(f"{run(inside, '--version').strip()}: installed and tried", flush=True)


def main(pythons: list[str]) -> None:
    """Build, then try with each Python."""
    wheel, source = build()
    found = pythons or [f"python{version}" for version in VERSIONS if works(f"python{version}")]
    for python in found:
        attempt(python, wheel, source if python == found[0] else None)
    tried = [run(python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])").strip() for python in found]
    if left := [version for version in VERSIONS if version not in tried]:
        print(f"Not tried, for want of a Python: {', '.join(left)}")


def works(python: str) -> bool:
    """Whether there is such a Python; a shim may stand for one that is not."""
    found = shutil.which(python)
    return found is not None and subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode == 0


if __name__ == "__main__":
    main(sys.argv[1:])
