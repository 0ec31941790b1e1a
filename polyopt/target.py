"""Machine models: what recipes and emitters ask about a CPU. ISAs are data. Takes /proc and sysfs where they exist; gives `Target`."""

from __future__ import annotations

import platform
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from .errors import UserError


@dataclass(frozen=True)
class Isa:
    """A vector instruction set. `bytes`: vector width; `registers`: vector registers; `flags`: compiler flags; `cpu`: what CPUID must show."""

    name: str
    bytes: int
    registers: int
    flags: tuple[str, ...]
    cpu: tuple[str, ...]
    masks: bool = False


ISAS = {
    "scalar": Isa("scalar", 0, 16, (), ()),
    "avx2": Isa("avx2", 32, 16, ("-mavx2", "-mfma"), ("avx2", "fma")),
    "avx512": Isa(
        "avx512", 64, 32, ("-mavx512f", "-mavx512dq", "-mavx512bw", "-mavx512vl", "-mfma", "-mprefer-vector-width=512"),
        ("avx512f", "avx512dq", "avx512bw", "avx512vl"), masks=True,
    ),
    "neon": Isa("neon", 16, 32, (), ()),
}  # fmt: skip


@dataclass(frozen=True)
class Target:
    """A CPU: its ISA, cache sizes in bytes and FMA units. Latencies in cycles."""

    isa: Isa
    l1: int = 32 << 10
    l2: int = 512 << 10
    l3: int = 16 << 20
    fma_units: int = 2
    fma_latency: int = 4
    line: int = 64
    threads: int = 1

    def lanes(self, itemsize: int) -> int:
        """Elements of `itemsize` bytes in a vector (1 where there are no vectors)."""
        return max(1, self.isa.bytes // itemsize)


def cpu_flags() -> frozenset[str]:
    """What the running CPU offers, by /proc/cpuinfo's names (empty where unknown)."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(("flags", "Features")):
                return frozenset(line.split(":", 1)[1].split())
    except OSError:
        pass
    return frozenset()


def native_isa() -> str:
    """The widest ISA of the running CPU."""
    if platform.machine() in ("aarch64", "arm64"):
        return "neon"
    flags = cpu_flags()
    for name in ("avx512", "avx2"):
        if set(ISAS[name].cpu) <= flags:
            return name
    return "scalar"


def _cache_size(level: int) -> int | None:
    for i in range(5):
        d = Path(f"/sys/devices/system/cpu/cpu0/cache/index{i}")
        try:
            if int((d / "level").read_text()) == level and (d / "type").read_text().strip() != "Instruction":
                text = (d / "size").read_text().strip()
                return int(text.rstrip("KM")) * {"K": 1 << 10, "M": 1 << 20}.get(text[-1], 1)
        except (OSError, ValueError):
            continue
    return None


@cache
def cpu_target(isa: str = "native", threads: int = 1) -> Target:
    """The target for an ISA name; cache sizes are the running machine's where the ISA is native to it."""
    native = native_isa()
    name = native if isa == "native" else isa
    if name not in ISAS:
        raise UserError(f"isa {isa!r} is not known: choose one of native, {', '.join(ISAS)}")
    t = Target(ISAS[name], threads=threads)
    sizes = {f"l{n}": s for n in (1, 2, 3) if (s := _cache_size(n))}
    return replace(t, **sizes)  # type: ignore[arg-type]
